"""Ada, a participant with her own model and data, and what a coordinator sends her."""

from pathlib import Path
from typing import Any

import torch

from pfedes import Participant, configure
from pfedes.config import Config
from pfedes.core.payload import Payload
from pfedes.core.protocol import Task
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.deploy.versions import enrolment_message
from pfedes.models.extractor import extractor_for

OWN = Path(__file__).parents[1] / "examples" / "own"


DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def terms(**settings: Any) -> Config:
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    base = {
        "federation.classes": DIGITS,
        "federation.participants": ["ada", "ben"],
        "train.rounds": 3,
        "train.epochs": 1,
        "method.extractor_epochs": 1,
    }
    return configure(settings={**base, **chosen})


def ada(state: Path, **more: Any) -> Participant:
    return Participant(
        name="ada",
        model=f"{OWN}/models.py:mlp",
        data=f"{OWN}/data.py:small",
        state=str(state),
        **more,
    )


def enrolled(guest: ParticipantHandler, config: Config | None = None) -> dict[str, Any]:
    return guest.handle(enrolment_message("ada", (config or terms()).to_toml())).meta


def task(round: int, base: int, run: str = "run", **tensors: torch.Tensor) -> Task:
    extractor = extractor_for((3, 8, 8), 8, "relu")
    torch.manual_seed(0)
    download = {name: torch.rand_like(t) * 0.1 for name, t in extractor.state_dict().items()}
    return Task(run, "ada", round, base, Payload({**download, **tensors}))
