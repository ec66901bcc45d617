"""Reads `published.json`: the numbers that the paper gives, each with its table and cell."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _values() -> list[dict[str, Any]]:
    text = files("pfedes.reproduction").joinpath("published.json").read_text(encoding="utf-8")
    values: list[dict[str, Any]] = json.loads(text)
    return values


def published(where: str, row: str, column: str) -> float | None:
    """The value of a cell; None where the paper prints '-' (no convergence)."""
    for value in _values():
        if (value["where"], value["row"], value["column"]) == (where, row, column):
            number: float | None = value["value"]
            return number
    raise KeyError(f"the paper has no value in {where}, {row}, {column}")
