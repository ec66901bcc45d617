"""Personalized federated learning in which every client keeps its own model.

Names are imported when first used, so that `pfedes --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pfedes.version import __version__

if TYPE_CHECKING:
    from pfedes.api.compare import compare as compare
    from pfedes.api.paper import paper as paper
    from pfedes.api.run import resume as resume
    from pfedes.api.run import run as run
    from pfedes.config import Config as Config
    from pfedes.config import configure as configure
    from pfedes.config.limits import Limits as Limits
    from pfedes.config.participant import Participant as Participant
    from pfedes.core.client import Card as Card
    from pfedes.core.client import Client as Client
    from pfedes.core.context import Context as Context
    from pfedes.core.payload import Payload as Payload
    from pfedes.core.scores import Scores as Scores
    from pfedes.errors import BudgetError as BudgetError
    from pfedes.errors import ClusterError as ClusterError
    from pfedes.errors import ConfigError as ConfigError
    from pfedes.errors import DamageError as DamageError
    from pfedes.errors import DataError as DataError
    from pfedes.errors import DiskError as DiskError
    from pfedes.errors import FailedRunError as FailedRunError
    from pfedes.errors import ManyError as ManyError
    from pfedes.errors import MethodError as MethodError
    from pfedes.errors import ModelError as ModelError
    from pfedes.errors import PartitionError as PartitionError
    from pfedes.errors import PfedesError as PfedesError
    from pfedes.errors import RefusedError as RefusedError
    from pfedes.errors import StoreError as StoreError
    from pfedes.errors import TrainingError as TrainingError
    from pfedes.errors import WireError as WireError
    from pfedes.export.model_files import export_model as export_model
    from pfedes.federation.listener import Listener as Listener
    from pfedes.federation.loop import Federation as Federation
    from pfedes.methods.base import Method as Method
    from pfedes.methods.base import MethodConfig as MethodConfig
    from pfedes.methods.base import Upload as Upload
    from pfedes.methods.fd import FD as FD
    from pfedes.methods.fedavg import FedAvg as FedAvg
    from pfedes.methods.fedgh import FedGH as FedGH
    from pfedes.methods.fedkd import FedKD as FedKD
    from pfedes.methods.fedmrl import FedMRL as FedMRL
    from pfedes.methods.fedproto import FedProto as FedProto
    from pfedes.methods.fedre import FedRE as FedRE
    from pfedes.methods.fedssa import FedSSA as FedSSA
    from pfedes.methods.fedtgp import FedTGP as FedTGP
    from pfedes.methods.fml import FML as FML
    from pfedes.methods.lg_fedavg import LGFedAvg as LGFedAvg
    from pfedes.methods.pfedes import PFedES as PFedES
    from pfedes.methods.standalone import Standalone as Standalone
    from pfedes.models.cnn import CNN as CNN
    from pfedes.models.extractor import Extractor as Extractor
    from pfedes.report.output import write_results as write_results
    from pfedes.results.personal import PersonalModel as PersonalModel
    from pfedes.results.run import Run as Run
    from pfedes.results.run import open_run as open_run
    from pfedes.sweep.compared import Comparison as Comparison

_HOMES = {
    "BudgetError": "errors",
    "CNN": "models.cnn",
    "Card": "core.client",
    "Client": "core.client",
    "ClusterError": "errors",
    "Comparison": "sweep.compared",
    "Config": "config",
    "ConfigError": "errors",
    "Context": "core.context",
    "DamageError": "errors",
    "DataError": "errors",
    "DiskError": "errors",
    "Extractor": "models.extractor",
    "FD": "methods.fd",
    "FML": "methods.fml",
    "FailedRunError": "errors",
    "FedAvg": "methods.fedavg",
    "FedGH": "methods.fedgh",
    "FedKD": "methods.fedkd",
    "FedMRL": "methods.fedmrl",
    "FedProto": "methods.fedproto",
    "FedRE": "methods.fedre",
    "FedSSA": "methods.fedssa",
    "FedTGP": "methods.fedtgp",
    "Federation": "federation.loop",
    "LGFedAvg": "methods.lg_fedavg",
    "Limits": "config.limits",
    "Listener": "federation.listener",
    "ManyError": "errors",
    "Method": "methods.base",
    "MethodConfig": "methods.base",
    "MethodError": "errors",
    "ModelError": "errors",
    "PFedES": "methods.pfedes",
    "Participant": "config.participant",
    "PartitionError": "errors",
    "Payload": "core.payload",
    "PersonalModel": "results.personal",
    "PfedesError": "errors",
    "RefusedError": "errors",
    "Run": "results.run",
    "Scores": "core.client",
    "Standalone": "methods.standalone",
    "StoreError": "errors",
    "TrainingError": "errors",
    "Upload": "methods.base",
    "WireError": "errors",
    "compare": "api.compare",
    "configure": "config",
    "export_model": "export.model_files",
    "open_run": "results.run",
    "paper": "api.paper",
    "resume": "api.run",
    "run": "api.run",
    "write_results": "report.output",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - names are strings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pfedes' has no attribute {name!r}")
    return getattr(import_module(f"pfedes.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
