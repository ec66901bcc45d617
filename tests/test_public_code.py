"""What errors in public code do to a result, on runs made up by hand."""

from collections.abc import Mapping
from pathlib import Path

from pfedes.methods.fedgh import FedGHConfig
from pfedes.methods.fedmrl import FedMRLConfig
from pfedes.reproduction.experiment import Results
from pfedes.reproduction.experiments.public_code import show, wanted
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import LAPTOP
from pfedes.reproduction.scenario import Setting
from records import record
from running import hyper_parameters

Key = tuple[str, bool, int]
CLIENTS = [0.5, 0.6, 0.7, 0.8]


class Several(Results):
    """Runs by method, whether it is as specified, and seed."""

    def __init__(self, runs: Mapping[Key, Record]) -> None:
        super().__init__(LAPTOP, Path())
        self._runs = runs

    def record(self, setting: Setting) -> Record | None:
        return self._runs.get((setting.method, not setting.options, setting.seed))


def test_both_variants_are_what_was_announced() -> None:
    settings = wanted(LAPTOP)
    assert len(settings) == len(set(settings)) == 2 * 2 * 3
    assert [setting.seed for setting in settings] == [0] * 4 + [1] * 4 + [2] * 4
    variants: set[object] = set()
    for setting in settings:
        (config,) = LAPTOP.configs(setting)
        train = config.train
        assert (config.partition.clients, train.selected(20)) == (20, 20)
        assert (train.rounds, train.epochs, config.data.source) == (20, 1, "cifar10")
        if setting.method == "fedgh":
            variants.add(hyper_parameters(config, FedGHConfig).server_lr)
        else:
            variants.add(hyper_parameters(config, FedMRLConfig).projector)
    assert variants == {0.01, 0.0, "kept", "random"}


def test_what_an_error_costs_is_paired_over_the_seeds_that_both_have() -> None:
    lower = [value - 0.1 for value in CLIENTS]
    runs = {
        ("fedgh", True, 0): record(CLIENTS, 0, flops_server=700),
        ("fedgh", True, 1): record(lower, 1, flops_server=700),
        ("fedgh", False, 0): record(lower, 0),
        ("fedmrl", False, 2): record(CLIENTS, 2),
    }
    exhibit = show(Several(runs))
    (table,) = exhibit.tables.values()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    trained, frozen, kept, random = rows
    assert (trained["accuracy (%)"], trained["by seed"]) == ("60.00 ± 7.07", "65.00 55.00")
    assert (trained["verdict"], trained["FLOP"]) == ("reference", "1,000")
    assert frozen["difference"] == "-10.00 [-10.00, -10.00]"  # seed 0 alone
    assert (frozen["verdict"], frozen["FLOP"]) == ("behind", "300")
    assert (kept["accuracy (%)"], kept["FLOP"]) == ("", "")
    assert (random["accuracy (%)"], random["difference"]) == ("65.00", "")
    assert any(note.startswith("8 of 12 runs: not run yet") for note in exhibit.notes)
