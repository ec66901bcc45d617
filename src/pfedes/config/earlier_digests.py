"""Digests of a configuration as earlier versions computed them, to recognise their runs.

These digests cover all keys of their version, also those at their defaults, and the location of the
data. They do not cover newer keys: a run with a newer key that is not at its default is no earlier
run.
"""

from typing import Any

from pfedes.config import SERVER_SIDE, WHO, Config, digest_of
from pfedes.config.federation import NETWORK

METHODS: dict[str, set[str]] = {
    "pfedes": {
        *("mu", "extractor_epochs", "extractor_lr", "extractor", "width", "final_activation"),
        *("final_activation_other", "sharing", "start_from"),
    },
    "standalone": set(),
    "fedavg": set(),
    "fml": {"alpha", "beta", "shared_model", "averaging"},
    "fedkd": {
        *("mentee_lr", "shared_model", "compression", "energy_start", "energy_end"),
        *("schedule_rounds", "weight_floor", "grad_through_weight", "averaging"),
    },
    "lg_fedavg": {"averaging"},
    "fd": {"gamma", "statistics", "averaging"},
    "fedproto": {"lambda_", "statistics", "averaging", "table", "inference"},
}
SECTIONS: dict[str, Any] = {
    "seed": True,
    "data": {"source", "dir", "image_size", "limit", "normalise"},
    "partition": {"kind", "clients", "classes_per_client", "alpha", "split", "rule"},
    "models": {"pool", "assign", "init"},
    "train": {
        *("rounds", "participation", "epochs", "batch_size", "lr", "momentum", "weight_decay"),
        *("clip", "augment", "optimiser", "min_uploads", "patience"),
    },
    "federation": {"classes", "channels", "mean", "std"},
    "participants": {
        "__all__": {
            **dict.fromkeys(("name", "model", "data", "head", "classes", "image_size"), True),
            **dict.fromkeys(("methods", "consents", "state", "device", "threads"), True),
            **dict.fromkeys(("compare_alone", "rollback"), True),
            "limits": {"epochs", "floats"},
        }
    },
}


def earlier_federation_digest(config: Config) -> str:
    """The former `federation_digest`; '' if no earlier version knew such a configuration."""
    known = _known("seed", *WHO)
    if _has_newer(config, known):
        return ""
    return digest_of(config.model_dump_json(include={**known, "method": {"name"}}))


def earlier_local_digest(config: Config) -> str:
    """The former `local_digest`; '' if no earlier version knew such a configuration."""
    settled = config.settled()
    own = METHODS.get(settled.method.name)  # None: a custom method, whose keys are all known
    known = {
        **_known("seed", "train", *WHO),
        "method": True if own is None else {"name", *own},
    }
    if _has_newer(settled, known):
        return ""
    return digest_of(settled.model_dump_json(include=known, exclude={"train": SERVER_SIDE}))


def _known(*names: str) -> dict[str, Any]:
    return {name: SECTIONS[name] for name in names}


def _has_newer(config: Config, known: dict[str, Any]) -> bool:
    """Whether these sections set a key that earlier versions did not have."""
    indifferent = {**known, "federation": known["federation"] | NETWORK}
    rest = config.model_dump(include=set(known), exclude=indifferent, exclude_defaults=True)
    return _holds_anything(rest)


def _holds_anything(tree: Any) -> bool:
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return any(map(_holds_anything, tree)) if isinstance(tree, tuple) else True
