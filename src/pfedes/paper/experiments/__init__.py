"""The paper's tables and figures, each as an experiment that can be repeated."""

from typing import TYPE_CHECKING

from pfedes.errors import ConfigError, unknown

if TYPE_CHECKING:
    from pfedes.paper.experiment import Experiment


def experiments() -> "dict[str, Experiment]":
    """All experiments by name, in the order of the paper."""
    from pfedes.paper.experiments.ablation import ABLATION
    from pfedes.paper.experiments.claims import CLAIMS
    from pfedes.paper.experiments.convergence import CONVERGENCE, INDIVIDUAL
    from pfedes.paper.experiments.enhanced import ENHANCED
    from pfedes.paper.experiments.leaderboard import LEADERBOARD
    from pfedes.paper.experiments.models import MODELS_TABLE
    from pfedes.paper.experiments.sweeps import NONIID, PARTICIPATING, SENSITIVITY
    from pfedes.paper.experiments.tables import HETEROGENEOUS, HOMOGENEOUS
    from pfedes.paper.experiments.tradeoff import TRADEOFF
    from pfedes.paper.experiments.tsne import TSNE
    from pfedes.paper.theory.experiment import THEORY

    known = (
        *(MODELS_TABLE, HETEROGENEOUS, HOMOGENEOUS, CONVERGENCE, INDIVIDUAL, TRADEOFF, TSNE),
        *(ENHANCED, NONIID, PARTICIPATING, SENSITIVITY, CLAIMS, ABLATION, LEADERBOARD, THEORY),
    )
    return {experiment.name: experiment for experiment in known}


def experiment_named(name: str) -> "Experiment":
    known = experiments()
    if name not in known:
        raise ConfigError(unknown("experiment", name, known))
    return known[name]
