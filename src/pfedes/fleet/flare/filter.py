"""The site's own last look at what leaves, in FLARE's filter chain.

`pfedes join` writes its list into the site's `privacy.json`, from participant.toml: no job can
change or remove it. It knows nothing of methods, and compares names, shapes and types.
"""

import json
from typing import Any

from nvflare.apis.dxo import from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from pfedes.errors import WireError
from pfedes.fleet.flare.messages import META

LONGEST = 1_000_000  # characters of metadata: a card may name every tensor of a model


class OnlyAgreed(Filter):  # type: ignore[misc]  # FLARE has no types
    """Lets a result pass if all in it is on the list; else nothing leaves."""

    def __init__(
        self, tensors: dict[str, list[dict[str, Any]]], values: list[str], floats: int = 0
    ) -> None:
        """`floats` is the most numbers that may leave at once; 0 = as many as the list allows."""
        super().__init__()
        self.tensors = tensors
        self.values = set(values)
        self.floats = floats

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        if shareable.get_return_code() != ReturnCode.OK:
            return make_reply(shareable.get_return_code())  # a failure, and nothing else in it
        dxo = from_shareable(shareable)
        if set(dxo.meta) - {META, "kind"} or len(dxo.meta[META]) > LONGEST:
            raise WireError("metadata that nobody agreed to")
        meta = json.loads(dxo.meta[META])
        if foreign := set(meta) - self.values:
            raise WireError(f"{min(foreign)} is not on the list of what may leave")
        for name, array in dxo.data.items():
            if not any(_admits(form, array) for form in self.tensors.get(name, [])):
                raise WireError(f"{name} is not on the list of what may leave")
        numbers = sum(array.size for array in dxo.data.values())
        if self.floats and numbers > self.floats:
            raise WireError(f"{numbers} numbers would leave, {self.floats} may")
        return shareable


def _admits(form: dict[str, Any], array: Any) -> bool:
    if str(array.dtype) != form["dtype"] or array.ndim != len(form["shape"]):
        return False
    return all(
        size <= want["most"] if isinstance(want, dict) else size == want
        for size, want in zip(array.shape, form["shape"], strict=True)
    )
