"""The site's final check of everything that leaves, in FLARE's filter chain.

`pfedes join` writes its list into the site's `privacy.json`, from participant.toml: no job can
change or remove it. It knows nothing of methods, and compares names, shapes and types, and
how long values are.
"""

import json
from typing import Any

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from torch import Tensor

from pfedes.core.payload import Value
from pfedes.core.protocol import MEASURES
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.deploy.sum_messages import UNCOUNTED
from pfedes.errors import WireError

CARD, SIGNATURE = "up/card", "up/sum_signature"
LONGEST = 1_000_000  # characters of metadata: a card may name every tensor of a model
LONGEST_SIGNATURE = 1024  # characters
LENGTHS = {CARD: LONGEST, MEASURES: LONGEST, SIGNATURE: LONGEST_SIGNATURE}
LONGEST_TEXT = 128  # of every other value: names, digests, versions
LONGEST_LIST = 10_000  # numbers: versions, or classes with their counts
LARGEST = 2**80
CODES = [code for name, code in vars(ReturnCode).items() if name.isupper()]


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
        if (code := shareable.get_return_code()) != ReturnCode.OK:  # a failure, and nothing else
            return make_reply(code if code in CODES else ReturnCode.EXECUTION_EXCEPTION)
        payload = to_payload(shareable)
        if len(json.dumps(payload.meta)) > LONGEST:
            raise WireError("metadata that was not agreed on")
        if foreign := set(payload.meta) - self.values:
            raise WireError(f"{min(foreign)} is not on the list of what may leave")
        for name, value in payload.meta.items():
            longest = LENGTHS.get(name, LONGEST_TEXT)
            if not _is_short(value, longest):
                raise WireError(f"{name} is longer than anything that may leave under that name")
        for name, tensor in payload.tensors.items():
            if not any(_admits(form, tensor) for form in self.tensors.get(name, [])):
                raise WireError(f"{name} is not on the list of what may leave")
        floats = sum(t.numel() for name, t in payload.tensors.items() if name not in UNCOUNTED)
        if self.floats and floats > self.floats:
            raise WireError(f"{floats} numbers would leave, {self.floats} may")
        return to_shareable(payload)  # a new envelope: anything else in the old one stays here


def _is_short(value: Value, longest: int) -> bool:
    """Whether a value is of a kind that metadata has, and no longer than it needs to be."""
    if isinstance(value, str):
        return len(value) <= longest
    if isinstance(value, list):
        return len(value) <= LONGEST_LIST and all(
            type(number) is int and abs(number) <= LARGEST for number in value
        )
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST)


def _admits(form: dict[str, Any], tensor: Tensor) -> bool:
    if str(tensor.dtype).removeprefix("torch.") != form["dtype"]:
        return False
    return tensor.dim() == len(form["shape"]) and all(
        size <= want["most"] if isinstance(want, dict) else size == want
        for size, want in zip(tensor.shape, form["shape"], strict=True)
    )
