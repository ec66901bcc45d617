"""What is measured and reported, and the metric that chooses the best round."""

from typing import Annotated

from pydantic import Field

from pfedes.core.measures import Metric
from pfedes.section import Section


class EvaluateConfig(Section):
    """The table `[evaluate]`: what is measured and reported."""

    metric: Metric = Field(
        "accuracy",
        description="validation measure that chooses the best round and drives train.patience: "
        "accuracy | balanced_accuracy | macro_f1 | auc",
    )
    after_aggregation: bool = Field(
        False,
        description="measure all clients after aggregation, with a new download; changes the "
        "results of LG-FedAvg, FedGH, FedRE and FedMRL",
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.9,), description="target accuracies: the cost until each is first reached is reported"
    )
