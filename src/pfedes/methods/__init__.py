"""The methods, by name, and all that the author of a method needs in one import."""

import sys
from typing import Any, get_args

from pfedes import imports
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec
from pfedes.core.samples import Batch
from pfedes.core.training import (
    Learner,
    fit,
    fit_labels,
    frozen,
    label_loss,
    survey,
    train_rows,
)
from pfedes.core.wire import Labels, WireSpec, required
from pfedes.errors import ConfigError, unknown
from pfedes.formatting import listed
from pfedes.imports import imported
from pfedes.methods.base import Method, MethodConfig, Problem, Received, Upload, Wire, averaged
from pfedes.methods.fd import FD
from pfedes.methods.fedavg import FedAvg
from pfedes.methods.fedgh import FedGH
from pfedes.methods.fedkd import FedKD
from pfedes.methods.fedmrl import FedMRL
from pfedes.methods.fedproto import FedProto
from pfedes.methods.fedre import FedRE
from pfedes.methods.fedssa import FedSSA
from pfedes.methods.fedtgp import FedTGP
from pfedes.methods.fml import FML
from pfedes.methods.lg_fedavg import LGFedAvg
from pfedes.methods.pfedes import PFedES
from pfedes.methods.standalone import Standalone
from pfedes.models.head import head_of, represent

__all__ = [
    "Batch",
    "Card",
    "Client",
    "Context",
    "Labels",
    "Learner",
    "Method",
    "MethodConfig",
    "Payload",
    "Problem",
    "Received",
    "State",
    "TensorSpec",
    "Upload",
    "Wire",
    "WireSpec",
    "averaged",
    "fit",
    "fit_labels",
    "frozen",
    "head_of",
    "label_loss",
    "represent",
    "required",
    "survey",
    "train_rows",
]

METHODS: dict[str, type[Method[Any]]] = {
    "pfedes": PFedES,
    "standalone": Standalone,
    "fedavg": FedAvg,
    "fml": FML,
    "fedkd": FedKD,
    "lg_fedavg": LGFedAvg,
    "fd": FD,
    "fedproto": FedProto,
    "fedssa": FedSSA,
    "fedgh": FedGH,
    "fedre": FedRE,
    "fedtgp": FedTGP,
    "fedmrl": FedMRL,
}


_of_this_program: dict[str, type[Method[Any]]] = {}
"""Methods of a notebook or a script, whose classes no other process can import."""


def make_known(method: Method[Any]) -> None:
    """Lets a method object be meant by its name, in this process alone.

    A ConfigError if the name is another method's: a run would train with that one.
    """
    name, kind = method.name, type(method)
    if ":" in name:
        return
    if name not in METHODS:
        _of_this_program[name] = kind
    elif METHODS[name] is not kind:
        raise ConfigError(
            f"{kind.__name__} has the name of the built-in method {name!r}: "
            "give its Config a name of its own"
        )


def of_this_program(config: MethodConfig) -> str:
    """The part of a method's configuration that other processes cannot import; '' if none."""
    if config.name in _of_this_program:
        return f"method {config.name!r}"
    for key, value in config.model_dump().items():
        if isinstance(value, str) and imports.is_of_this_program(value):
            return f"method.{key} = {value!r}"
    return ""


def known_name(method: "Method[Any] | type[Method[Any]] | str") -> str:
    """The name by which a method is meant, whether it is given as a name, a class or an object."""
    if isinstance(method, str):
        return method
    chosen = method() if isinstance(method, type) else method
    make_known(chosen)
    return chosen.name


def display_name(name: str) -> str:
    """The method's name in tables: its `display_name`, else its name without the module.

    Nothing is imported for it: names may come from somebody else's run directory.
    """
    kind = {**METHODS, **_of_this_program}.get(name) or _loaded(name)
    own = vars(kind).get("display_name", "") if kind is not None else ""  # not that of its base
    return str(own or name.rpartition(":")[2])


def _loaded(name: str) -> type[Method[Any]] | None:
    module, _, attribute = name.rpartition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, Method) else None


def method_class(name: str) -> type[Method[Any]]:
    """The class of a method: a built-in name, or `module:Class` of your own."""
    if ":" in name:
        return _own(name)
    known = {**METHODS, **_of_this_program}
    if name not in known:
        own = "; a method of your own is named 'module:Class'"
        raise ConfigError(unknown("method", name, known) + own)
    return known[name]


def _own(name: str) -> type[Method[Any]]:
    found = imported("method", name)
    if not (isinstance(found, type) and issubclass(found, Method) and hasattr(found, "Config")):
        raise ConfigError(f"method {name!r} is not a subclass of pfedes.Method with a Config")
    names = get_args(found.Config.model_fields["name"].annotation)
    if names and name not in names:
        raise ConfigError(
            f"method {name!r}: its {found.Config.__name__} allows no name but "
            f"{listed(list(map(repr, names)), 1)}; declare 'name: str = \"{name}\"' there"
        )
    return found
