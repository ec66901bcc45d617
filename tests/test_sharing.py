"""The experiment on sharing, on runs made up by hand and on one that took place."""

from pathlib import Path
from typing import Any

import pytest

from pfedes import Federation, open_run
from pfedes.reproduction.experiment import Measure, Results
from pfedes.reproduction.experiments.sharing import ARMS, by_raw_images, show, wanted
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import CONVERGED, SMOKE
from pfedes.reproduction.scenario import Setting
from records import record
from running import small

OWN = [0.5, 0.6, 0.7, 0.8]


class Made(Results):
    """Sharing gives ten points by both views and takes five by raw images; one arm is missing."""

    def __init__(self) -> None:
        super().__init__(SMOKE, Path())

    def record(self, setting: Setting) -> Record | None:
        options = dict(setting.options)
        if options.get("method.residual"):
            return None
        shared = options["method.sharing"] == "global"
        return record([value + 0.1 for value in OWN] if shared else OWN, 0)

    def measured(self, setting: Setting, measure: Measure) -> Any | None:
        shared = dict(setting.options)["method.sharing"] == "global"
        return {"accuracies": [value - 0.05 for value in OWN] if shared else OWN}


def test_each_way_of_predicting_is_paired_with_own_extractors() -> None:
    exhibit = show(Made())
    rows = [row[:6] for row in exhibit.tables["sharing"].rows]
    assert rows[:2] == [
        [
            "as in the paper",
            "F(x) and F(G(x))",
            "75.00",
            "65.00",
            "+10.00 [+10.00, +10.00]",
            "ahead",
        ],
        ["as in the paper", "F(x)", "60.00", "65.00", "-5.00 [-5.00, -5.00]", "behind"],
    ]
    assert len(rows) == 2 * (len(ARMS) - 1)
    assert exhibit.notes[-1] == "not run yet: residual."


def test_every_arm_is_one_run_shared_and_one_not() -> None:
    settings = wanted(CONVERGED)
    digests = {config.result_digest() for cell in settings for config in CONVERGED.configs(cell)}
    assert len(settings) == len(digests) == 2 * len(ARMS)


def test_raw_images_are_measured_without_the_extractor(tmp_path: Path) -> None:
    settings = {"method.inference": "both", "method.sharing": "local"}
    Federation(small(**settings), out=tmp_path / "both").run()
    Federation(small(**{**settings, "method.inference": "raw"}), out=tmp_path / "raw").run()
    both, raw = open_run(tmp_path / "both"), open_run(tmp_path / "raw")
    assert by_raw_images(both)["accuracies"] == pytest.approx(raw.summary["accuracies"])
