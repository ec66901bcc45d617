"""The paper's tables and figures, each as an experiment that can be repeated."""

from typing import TYPE_CHECKING

from pfedes.errors import ConfigError, unknown

if TYPE_CHECKING:
    from pfedes.reproduction.experiment import Experiment


def experiments() -> "dict[str, Experiment]":
    """All experiments by name, in the order of the paper."""
    from pfedes.reproduction.experiments.ablation import ABLATION
    from pfedes.reproduction.experiments.claims import CLAIMS
    from pfedes.reproduction.experiments.convergence import CONVERGENCE, INDIVIDUAL
    from pfedes.reproduction.experiments.enhanced import ENHANCED
    from pfedes.reproduction.experiments.leaderboard import LEADERBOARD
    from pfedes.reproduction.experiments.models import MODELS_TABLE
    from pfedes.reproduction.experiments.public_code import PUBLIC_CODE
    from pfedes.reproduction.experiments.rules import RULES
    from pfedes.reproduction.experiments.sharing import SHARING
    from pfedes.reproduction.experiments.sweeps import NONIID, PARTICIPATING, SENSITIVITY
    from pfedes.reproduction.experiments.tables import HETEROGENEOUS, HOMOGENEOUS
    from pfedes.reproduction.experiments.tradeoff import TRADEOFF
    from pfedes.reproduction.experiments.tsne import TSNE
    from pfedes.reproduction.theory.experiment import THEORY

    known = (
        *(MODELS_TABLE, HETEROGENEOUS, HOMOGENEOUS, CONVERGENCE, INDIVIDUAL, TRADEOFF, TSNE),
        *(ENHANCED, NONIID, PARTICIPATING, SENSITIVITY, CLAIMS),
        *(ABLATION, SHARING, RULES, LEADERBOARD, PUBLIC_CODE, THEORY),
    )
    return {experiment.name: experiment for experiment in known}


def experiment_named(name: str) -> "Experiment":
    """An experiment by its name; raises ConfigError, with the known names, if there is none."""
    known = experiments()
    if name not in known:
        raise ConfigError(unknown("experiment", name, known))
    return known[name]
