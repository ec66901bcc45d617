"""The methods, by name."""

from typing import Any

from pfedes.errors import ConfigError, unknown
from pfedes.methods.base import Method
from pfedes.methods.fedavg import FedAvg
from pfedes.methods.pfedes import PFedES
from pfedes.methods.standalone import Standalone

METHODS: dict[str, type[Method[Any]]] = {
    "pfedes": PFedES,
    "standalone": Standalone,
    "fedavg": FedAvg,
}


def method_class(name: str) -> type[Method[Any]]:
    """The class of a method, or an error that lists the known names."""
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    return METHODS[name]
