"""What a participant lets happen: decided by its own file, never by what a server says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pfedes.client import Card
from pfedes.errors import ConfigError, WireError
from pfedes.methods import METHODS
from pfedes.methods.base import Context, Method
from pfedes.participant import Limits
from pfedes.payload import Payload, WireSpec


@dataclass(frozen=True)
class Consent:
    """The methods and keys that a participant agreed to, and how much of it."""

    methods: tuple[str, ...]
    keys: Mapping[str, Any]
    limits: Limits

    def refusals(self, method: Method[Any], card: Card, ctx: Context) -> Iterator[str]:
        """Why a round that is asked for will not be done; nothing if it will."""
        if method.name not in self.methods:
            agreed = ", ".join(self.methods)
            yield f"no consent to method {method.name!r}: participant.toml names {agreed}"
            return
        agreed_to = self._own(method.name).allowed(card, ctx).up
        if not method.allowed(card, ctx).up.within(agreed_to):
            keys = ", ".join(self._shaping(method, agreed_to, card, ctx))
            yield f"no consent to what {method.name!r} would send with {keys}, see [consents]"
        if (most := self.limits.epochs) and (asked := most_epochs(method, ctx)) > most:
            yield f"{asked} epochs are asked for, limits.epochs allows {most}"

    def keys_of(self, name: str) -> dict[str, Any]:
        """The keys agreed to that a method has."""
        fields = METHODS[name].Config.model_fields.items()
        known = {field.alias or key for key, field in fields}
        return {key: value for key, value in self.keys.items() if key in known}

    def check_amount(self, reply: Payload) -> None:
        if (most := self.limits.floats) and reply.floats > most:
            raise WireError(f"{reply.floats} floats would leave, limits.floats allows {most}")

    def _shaping(
        self, method: Method[Any], agreed_to: WireSpec, card: Card, ctx: Context
    ) -> Iterator[str]:
        """The keys of a server's wish by which something else would leave."""
        for key, value in method.config.model_dump(exclude={"name"}).items():
            if not self._own(method.name, {key: value}).allowed(card, ctx).up.within(agreed_to):
                yield f"{key} = {value!r}"

    def _own(self, name: str, changed: Mapping[str, Any] | None = None) -> Method[Any]:
        kind = METHODS[name]
        chosen = {**self.keys_of(name), **(changed or {})}
        try:
            return kind(kind.Config(name=name, **chosen))
        except ValidationError as error:
            problem = error.errors()[0]
            key = ".".join(map(str, problem["loc"]))
            raise ConfigError(f"consents.{key}: {problem['msg']}") from None


def most_epochs(method: Method[Any], ctx: Context) -> int:
    """Of any model in a round."""
    own = [int(v) for k, v in method.config.model_dump().items() if k.endswith("epochs")]
    return max([ctx.train.epochs, *own])
