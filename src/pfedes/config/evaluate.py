"""What is measured and reported, and the metric that chooses the best round."""

from typing import Annotated

from pydantic import Field

from pfedes.core.measures import Metric
from pfedes.section import Section


class EvaluateConfig(Section):
    """What is reported."""

    metric: Metric = Field(
        "accuracy",
        description="what chooses the best round, by validation, and ends by patience: accuracy | "
        "balanced_accuracy | macro_f1 | auc",
    )
    after_aggregation: bool = Field(
        False, description="measure all clients after aggregation (LG-FedAvg differs then)"
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.9,), description="accuracies whose costs are reported when they are first reached"
    )
