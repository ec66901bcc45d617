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
    """The class of a method, or an error that lists the known names."""
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    return METHODS[name]
