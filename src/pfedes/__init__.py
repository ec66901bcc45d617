"""Personalized federated learning in which every client keeps a model of its own.

Names are imported when first used, so that `pfedes --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfedes.client import Card as Card
    from pfedes.client import Client as Client
    from pfedes.client import Scores as Scores
    from pfedes.config import Config as Config
    from pfedes.config import configure as configure
    from pfedes.errors import ClusterError as ClusterError
    from pfedes.errors import ConfigError as ConfigError
    from pfedes.errors import DataError as DataError
    from pfedes.errors import MethodError as MethodError
    from pfedes.errors import ModelError as ModelError
    from pfedes.errors import PartitionError as PartitionError
    from pfedes.errors import PfedesError as PfedesError
    from pfedes.errors import StoreError as StoreError
    from pfedes.errors import WireError as WireError
    from pfedes.federation import Federation as Federation
    from pfedes.listener import Listener as Listener
    from pfedes.methods.base import Context as Context
    from pfedes.methods.base import Method as Method
    from pfedes.methods.base import MethodConfig as MethodConfig
    from pfedes.methods.base import Upload as Upload
    from pfedes.methods.fd import FD as FD
    from pfedes.methods.fedavg import FedAvg as FedAvg
    from pfedes.methods.fedkd import FedKD as FedKD
    from pfedes.methods.fedproto import FedProto as FedProto
    from pfedes.methods.fml import FML as FML
    from pfedes.methods.lg_fedavg import LGFedAvg as LGFedAvg
    from pfedes.methods.pfedes import PFedES as PFedES
    from pfedes.methods.standalone import Standalone as Standalone
    from pfedes.models.cnn import CNN as CNN
    from pfedes.models.extractor import Extractor as Extractor
    from pfedes.participant import Limits as Limits
    from pfedes.participant import Participant as Participant
    from pfedes.payload import Payload as Payload
    from pfedes.personal import Personal as Personal
    from pfedes.run import Run as Run
    from pfedes.run import open_run as open_run

__version__ = "0.1.0"

_HOMES = {
    "CNN": "models.cnn",
    "Card": "client",
    "Client": "client",
    "ClusterError": "errors",
    "Config": "config",
    "ConfigError": "errors",
    "Context": "methods.base",
    "DataError": "errors",
    "Extractor": "models.extractor",
    "FD": "methods.fd",
    "FML": "methods.fml",
    "FedAvg": "methods.fedavg",
    "FedKD": "methods.fedkd",
    "FedProto": "methods.fedproto",
    "Federation": "federation",
    "LGFedAvg": "methods.lg_fedavg",
    "Limits": "participant",
    "Listener": "listener",
    "Method": "methods.base",
    "MethodConfig": "methods.base",
    "MethodError": "errors",
    "ModelError": "errors",
    "PFedES": "methods.pfedes",
    "Participant": "participant",
    "PartitionError": "errors",
    "Payload": "payload",
    "Personal": "personal",
    "PfedesError": "errors",
    "Run": "run",
    "Scores": "client",
    "Standalone": "methods.standalone",
    "StoreError": "errors",
    "Upload": "methods.base",
    "WireError": "errors",
    "configure": "config",
    "open_run": "run",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - names are strings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pfedes' has no attribute {name!r}")
    return getattr(import_module(f"pfedes.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
