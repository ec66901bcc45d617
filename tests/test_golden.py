"""The bits of runs: states, rows and summaries are those that were recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from golden import cases, machine, outcome
from pfedes import Federation

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())
BITS = ("accuracy", "loss", "mean", "std", "zeros")  # what the names of real numbers have in them


def alike(found: Any, recorded: Any, key: str = "") -> bool:
    """Equal in what is counted, near in what was computed with real numbers."""
    if isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(
            alike(found[name], value, name) for name, value in recorded.items()
        )
    if isinstance(recorded, list):
        return len(found) == len(recorded) and all(
            alike(one, other, key) for one, other in zip(found, recorded, strict=True)
        )
    if isinstance(recorded, float) and any(word in key for word in BITS):
        return bool(found == pytest.approx(recorded, rel=0.05, abs=0.15))
    # Which round was best, and when a target was reached, may hang on one sample.
    return found == recorded or key in ("best_round", "round", "floats", "flops", "reason")


@pytest.mark.parametrize("name", RECORDED["runs"])
def test_a_run_gives_what_it_always_gave(name: str) -> None:
    run = Federation(cases()[name], out="run").run()
    found = json.loads(json.dumps(outcome(run)))
    recorded = RECORDED["runs"][name]
    # Later versions may say more of a run, never less.
    found["summary"] = {key: found["summary"][key] for key in recorded["summary"]}
    if machine() == RECORDED["machine"]:
        assert found == recorded
        return
    # Another build of torch, or another processor, gives other bits: no digest can be equal there.
    for digests in ("states", "server"):
        del found[digests], recorded[digests]
    assert alike(found, recorded)


def test_all_that_was_recorded_is_run() -> None:
    assert cases().keys() == RECORDED["runs"].keys()
