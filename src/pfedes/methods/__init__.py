"""The methods, by name."""

from typing import Any

from pfedes.errors import ConfigError, unknown
from pfedes.methods.base import Method
from pfedes.methods.fd import FD
from pfedes.methods.fedavg import FedAvg
from pfedes.methods.fedkd import FedKD
from pfedes.methods.fedproto import FedProto
from pfedes.methods.fml import FML
from pfedes.methods.lg_fedavg import LGFedAvg
from pfedes.methods.pfedes import PFedES
from pfedes.methods.standalone import Standalone
from pfedes.own import imported

METHODS: dict[str, type[Method[Any]]] = {
    "pfedes": PFedES,
    "standalone": Standalone,
    "fedavg": FedAvg,
    "fml": FML,
    "fedkd": FedKD,
    "lg_fedavg": LGFedAvg,
    "fd": FD,
    "fedproto": FedProto,
}


def method_class(name: str) -> type[Method[Any]]:
    """The class of a method: a built-in name, or `module:Class` of your own."""
    if ":" in name:
        return _own(name)
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    return METHODS[name]


def _own(name: str) -> type[Method[Any]]:
    found = imported("method", name)
    if not (isinstance(found, type) and issubclass(found, Method) and hasattr(found, "Config")):
        raise ConfigError(f"method {name!r} is not a subclass of pfedes.Method with a Config")
    return found
