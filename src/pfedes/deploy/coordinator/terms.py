"""Checks a federation's configuration, and which of its keys may still change."""

from collections.abc import Iterator
from typing import Any

from pfedes.config import Config, configure
from pfedes.config.federation import NETWORK
from pfedes.deploy.coordinator.fleet import begun
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.provisioning import ADMITTED, issued
from pfedes.deploy.names import check_host, check_site
from pfedes.errors import ConfigError, StoreError
from pfedes.methods import method_class

LARGEST_CHANGES = {
    **dict.fromkeys(("pfedes", "lg_fedavg"), 50.0),
    **dict.fromkeys(("fml", "fedkd", "fedavg", "fedmrl"), 500.0),
}
"""Defaults of aggregation.max_norm among participants; docs/reliability.md has what was seen."""


def check_terms(config: Config) -> None:
    """Refuses wrong names before anything is made."""
    terms = config.federation
    if not terms.participants:
        raise ConfigError("federation.participants must name the participants that may join")
    if config.participants:
        raise ConfigError(
            "participants = [...] is for simulations by 'pfedes run': for a federation across "
            "machines, name the participants in federation.participants"
        )
    check_host(terms.host)
    for name in terms.participants:
        check_site(name, terms.host)


def with_norm(config: Config, before: Config | None = None) -> Config:
    """Adds a bound on the change of an upload, unless the configuration names one.

    An existing federation (`before`) keeps its own.
    """
    # Where changes are clipped and summed, no norm needs another bound, and none is allowed.
    clipped = config.privacy.mode == "central" or config.privacy.secure_sum
    if "max_norm" in config.aggregation.model_fields_set or clipped:
        return config
    method = method_class(config.method.name)(config.method)
    largest = LARGEST_CHANGES.get(method.name, 0.0) if method.averages_parameters else 0.0
    if before is not None:
        largest = before.aggregation.max_norm
    rule = config.aggregation.model_copy(update={"max_norm": largest})
    return config.model_copy(update={"aggregation": rule})


def going_on(layout: Layout, config: Config) -> Config:
    """The configuration with which an existing federation continues, if it can."""
    before = configure(layout.config)
    config = with_norm(config, before)
    if before.federation_digest() != config.federation_digest():
        raise StoreError(f"{layout.directory} holds another federation: choose another directory")
    _refuse_to_move(layout, before, config)
    in_force(layout, config)
    staying = _staying(layout)
    others = (name for name in before.federation.participants if name in staying)
    names = dict.fromkeys((*config.federation.participants, *others))
    return with_participants(config, tuple(names))


def in_force(layout: Layout, config: Config) -> Config:
    """The terms of all parties: those of the run once it has begun, except for what may change.

    A run does not take other values from here; participants must not either.
    """
    if (run := begun(layout)) is None:
        return config
    train, terms = run.config.train, run.config.federation
    meeting = {key: getattr(config.federation, key) for key in NETWORK}
    own = run.config.model_copy(
        update={
            "train": train.model_copy(update={"rounds": config.train.rounds}),
            "federation": terms.model_copy(update=meeting),
        }
    )
    began, settled = dict(_values(own)), dict(_values(config.settled()))
    changed = [
        f"{key} = {value!r} (it began with {began.get(key)!r})"
        for key, value in _values(config)
        # What was left open was settled when the run began.
        if value != began.get(key) and value == settled[key]
    ]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)}: once a run has begun, only train.rounds and "
            f"{', '.join(f'federation.{key}' for key in sorted(NETWORK))} can change"
        )
    return own


def with_participants(config: Config, names: tuple[str, ...]) -> Config:
    terms = config.federation.model_copy(update={"participants": names})
    return config.model_copy(update={"federation": terms})


def _values(config: Config) -> Iterator[tuple[str, Any]]:
    tree = config.model_dump(mode="json", exclude={"participants", "compare"})
    for section, values in tree.items():
        if isinstance(values, dict):
            yield from ((f"{section}.{key}", value) for key, value in values.items())
        else:
            yield section, values


def _refuse_to_move(layout: Layout, before: Config, config: Config) -> None:
    """Everybody's kit says where the server is."""
    made_for, asked = (f"{c.federation.host}:{c.federation.port}" for c in (before, config))
    if layout.server.is_dir() and asked != made_for:
        raise StoreError(
            f"federation.host and port say {asked}, but all kits were made for {made_for}: "
            "change them back, or move kits, server, admin and provision in "
            f"{layout.directory} away, and hand out the new kits that 'pfedes serve' then "
            "makes"
        )


def _staying(layout: Layout) -> set[str]:
    """Participants that take part without being listed; a misspelt name is not among them."""
    admitted = {name for name, how in issued(layout).items() if how == ADMITTED}
    run = begun(layout)
    known = run.manifest.clients if run is not None else {}
    return {*admitted, *known, *layout.presence().connected}
