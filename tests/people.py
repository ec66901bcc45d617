"""The four participants of examples/own."""

from pathlib import Path
from typing import Any

from pfedes import Config, configure

OWN = Path(__file__).parents[1] / "examples" / "own"
PEOPLE = ("ada", "ben", "cleo", "dan")
QUICK = {
    "train.rounds": 2,
    "train.epochs": 1,
    "runtime.fleet": "serial",
    "runtime.report": False,
}


def federation(**settings: Any) -> Config:
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    return configure(OWN / "federation.toml", settings={**QUICK, **chosen})
