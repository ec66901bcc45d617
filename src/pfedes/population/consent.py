"""A participant's consents: its own file decides, never the server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pfedes.config.limits import Limits
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.core.protocol import BY_DEFAULT, MEASURES, REPLY_META, SHARES, STAYS, Share
from pfedes.errors import ConfigError, WireError
from pfedes.methods import METHODS
from pfedes.methods.base import Method


@dataclass(frozen=True)
class Consent:
    """The methods and keys that a participant agreed to, and how much of it."""

    methods: tuple[str, ...]
    keys: Mapping[str, Any]
    limits: Limits
    share: tuple[Share, ...] = BY_DEFAULT

    def refusals(self, method: Method[Any], card: Card, ctx: Context) -> Iterator[str]:
        """Why a round that is asked for will not be done; nothing if it will."""
        if method.name not in self.methods:
            known = ", ".join(self.methods)
            yield f"no consent to method {method.name!r}: participant.toml names {known}"
            return
        agreed = self._own(method.name)
        if not _sends_no_more(method, agreed, card, ctx):
            keys = ", ".join(self._shaping(method, agreed, card, ctx))
            yield f"no consent to what {method.name!r} would send with {keys}, see [consents]"
        for word in self._untold(method, card, ctx):
            yield (
                f"no consent to {word!r} with an upload: participant.toml's share does not name "
                f"it, and {_demand(word, ctx)} demands it"
            )
        for bound in self.limits.bounds(method, card, ctx):
            if not bound.is_kept:
                yield str(bound)

    def keys_of(self, name: str) -> dict[str, Any]:
        """The keys agreed to that a method has."""
        fields = METHODS[name].Config.model_fields.items()
        known = {field.alias or key for key, field in fields}
        return {key: value for key, value in self.keys.items() if key in known}

    def check_amount(self, reply: Payload) -> None:
        if (most := self.limits.floats) and reply.floats > most:
            raise WireError(f"{reply.floats} floats would leave, limits.floats allows {most}")

    def _untold(self, method: Method[Any], card: Card, ctx: Context) -> Iterator[Share]:
        """The metadata that would have to leave over a network, but are not shared."""
        demanded = REPLY_META.keys() - STAYS[ctx.metadata]
        if ctx.metadata == "all":
            demanded |= method.allowed(card, ctx).up.meta.keys()
        if ctx.measures:
            demanded |= {MEASURES}
        for word, names in SHARES.items():
            if word not in self.share and names & demanded:
                yield word

    def _shaping(
        self, method: Method[Any], agreed: Method[Any], card: Card, ctx: Context
    ) -> Iterator[str]:
        """The keys of a server's wish by which something else would leave."""
        for key, value in method.config.model_dump(exclude={"name"}).items():
            if not _sends_no_more(self._own(method.name, {key: value}), agreed, card, ctx):
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


def _demand(word: Share, ctx: Context) -> str:
    if word == MEASURES:
        return "federation.measures = true"
    return f"privacy.metadata = {ctx.metadata!r}"


def _sends_no_more(wished: Method[Any], agreed: Method[Any], card: Card, ctx: Context) -> bool:
    """Whether all that leaves by one method, the card included, would leave by another too."""
    up, agreed_to = (method.allowed(card, ctx).up for method in (wished, agreed))
    return wished.needs <= agreed.needs and up.within(agreed_to)
