"""The paper's tables and figures, each as an experiment that can be repeated."""

from typing import TYPE_CHECKING

from pfedes.errors import ConfigError, unknown

if TYPE_CHECKING:
    from pfedes.paper.experiment import Experiment


def experiments() -> "dict[str, Experiment]":
    """All experiments by name, in the order of the paper."""
    from pfedes.paper.ablation import ABLATION
    from pfedes.paper.claims import CLAIMS
    from pfedes.paper.convergence import CONVERGENCE, INDIVIDUAL
    from pfedes.paper.enhanced import ENHANCED
    from pfedes.paper.models import MODELS_TABLE
    from pfedes.paper.sweeps import NONIID, PARTICIPATING, SENSITIVITY
    from pfedes.paper.tables import HETEROGENEOUS, HOMOGENEOUS
    from pfedes.paper.theory.experiment import THEORY
    from pfedes.paper.tradeoff import TRADEOFF
    from pfedes.paper.tsne import TSNE

    known = (
        *(MODELS_TABLE, HETEROGENEOUS, HOMOGENEOUS, CONVERGENCE, INDIVIDUAL, TRADEOFF, TSNE),
        *(ENHANCED, NONIID, PARTICIPATING, SENSITIVITY, CLAIMS, ABLATION, THEORY),
    )
    return {experiment.name: experiment for experiment in known}


def experiment_named(name: str) -> "Experiment":
    known = experiments()
    if name not in known:
        raise ConfigError(unknown("experiment", name, known))
    return known[name]
