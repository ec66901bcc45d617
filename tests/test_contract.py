"""What the round loop takes for granted of a method is checked before round 1."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from conftest import SMALL
from pfedes import (
    Client,
    ConfigError,
    Federation,
    Method,
    MethodConfig,
    MethodError,
    Standalone,
    Upload,
    open_run,
)
from pfedes.cli import execute
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec
from pfedes.core.protocol import RESERVED_META, Task
from pfedes.core.training import fit_labels
from pfedes.core.wire import Number, WireSpec, required
from pfedes.errors import FailedRunError
from pfedes.federation.admission import Verdict
from pfedes.federation.rows import client_row
from pfedes.methods import display_name
from pfedes.methods.base import Problem, Received, Wire
from pfedes.sweep.cells import Outcome
from pfedes.sweep.compare import cells_of, results_of, table_of
from running import small


class OwnConfig(MethodConfig):
    name: str = "test_contract:Own"


class Own(Method[OwnConfig]):
    """Trains alone; a subclass says what it would send."""

    Config = OwnConfig
    meta: Mapping[str, Any] = MappingProxyType({})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(fit_labels(client, ctx), meta=dict(self.meta))


class Declares(Own):
    """Lists a name of the loop's own."""

    meta = MappingProxyType({"accuracy": 1.0})

    def allowed(self, card: Card, ctx: Context) -> Wire:
        return Wire(WireSpec(), WireSpec((), {"accuracy": Number(float)}))


class Smuggles(Own):
    """Sends, without listing it, a value in the place of the loop's own."""

    meta = MappingProxyType({"test_correct": 10**6})


class Renames(Own):
    """Averages tensors that its downloads have no counterpart of."""

    averages_parameters = True

    def allowed(self, card: Card, ctx: Context) -> Wire:
        return Wire(WireSpec(), WireSpec((required({"change": TensorSpec((2,))}),)))

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(0.0, {"change": torch.zeros(2)})


class Shapes(Own):
    """Lists a shape in the place of a form."""

    def allowed(self, card: Card, ctx: Context) -> Wire:
        shape: Any = (2,)
        return Wire(WireSpec((required({"change": shape}),)), WireSpec())


class ListsNothing(Own):
    def allowed(self, card: Card, ctx: Context) -> Any:
        """As if the last line was forgotten."""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ListsNothing, "allowed() returned None, expected a Wire"),
        (Shapes, "allowed() lists the tensor 'change' as (2,): it must be a TensorSpec"),
        (Declares, "metadata 'accuracy' is reserved for the round loop"),
        (Renames, "tensor 'change' is not in the download: override change()"),
    ],
)
def test_a_contradiction_is_named_before_anything_is_written(
    kind: type[Own], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_contract.Own", kind)
    with pytest.raises(MethodError) as refused:
        Federation(small("test_contract:Own"), out=tmp_path / "run").run()
    assert text in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_reserved_name_that_was_not_listed_is_refused_at_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_contract.Own", Smuggles)
    with pytest.raises(FailedRunError, match="'test_correct' is reserved"):
        Federation(small("test_contract:Own"), out=tmp_path / "run").run()


class Misspells(Own):
    """Fails at every client in the same line."""

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(client.modle)  # type: ignore[attr-defined]  # the user's mistake


class FailsAtTheServer(Own):
    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State({"sum": uploads[0].payload.tensors["absent"]})


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


@pytest.mark.parametrize("fleet", ["serial", "workers"])
def test_a_method_that_fails_at_every_client_ends_the_run_with_its_place(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise an accuracy of untrained models would look like a result."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    chosen = [f"--set={key}={value}" for key, value in SMALL.items() if "method" not in key]
    chosen += ["--set=runtime.fleet=" + fleet, "--set=runtime.workers=1"]
    name = "test_contract:Misspells"
    code = execute(["run", "--method", name, "--out", str(tmp_path / "run"), *chosen])
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == 1
    assert "all 4 clients of round 1 failed: AttributeError" in said
    assert f"({line_of('Upload(client.modle)')})" in said
    assert open_run(tmp_path / "run").manifest.round == 0


def test_a_comparison_has_a_dash_and_a_note_where_a_method_failed(tmp_path: Path) -> None:
    cells = cells_of(small(), ["standalone", "test_contract:Misspells"], [0], tmp_path)
    outcomes = []
    for cell in cells:
        try:
            outcomes.append(Outcome(cell, Federation(cell.config, out=cell.directory).run()))
        except FailedRunError as error:
            outcomes.append(Outcome(cell, None, str(error)))
    table = table_of(results_of(outcomes, ["standalone", "test_contract:Misspells"]), [0.9])
    assert set(table.rows[1][1:]) == {"-"}
    assert "'Standalone'" not in table.notes[0]
    assert "modle" in table.notes[0]


def test_a_comparison_in_which_a_run_failed_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its table is there all the same. Whether the input was wrong, its exit code says."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    chosen = [f"--set={key}={value}" for key, value in SMALL.items() if "method" not in key]
    own = ["test_contract:Misspells", "test_contract:FailsDifferently"]
    words = ["compare", "--out", str(tmp_path), *chosen, "--methods"]
    assert execute([*words, ",".join(["standalone", *own])]) == 1
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert f"2 of 3 runs failed: {own[0]}/seed-0, {own[1]}/seed-0. Fix that, then" in last
    assert f"{own[1]}/seed-0: no round succeeded\n" in said.err
    assert "\nMisspells: all 4 clients of round 1 failed" in said.out
    assert "modle" in (tmp_path / "compare.tex").read_text()
    assert "Fix that" not in (tmp_path / "compare.tex").read_text()
    assert execute([*words, own[0]]) == 1  # as of the run alone
    last = capsys.readouterr().err.splitlines()[-1]
    assert "all 4 clients of round 1 failed" in last
    assert last.endswith(f"Fix that, then run the same command with --out {tmp_path}")


def test_a_run_in_which_no_round_succeeded_has_no_accuracy_in_a_table(tmp_path: Path) -> None:
    """Here every client fails for a reason of its own, and the run continues to its end."""
    name = "test_contract:FailsDifferently"
    (cell,) = cells_of(small(), [name], [0], tmp_path)
    run = Federation(cell.config, out=cell.directory).run()
    assert not run.trained
    table = table_of(results_of([Outcome(cell, run)], [name]), [0.9])
    assert set(table.rows[0][1:]) == {"-"}
    assert "no round succeeded: ValueError" in table.notes[0]


def test_a_run_in_which_no_round_succeeded_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [f"--set={key}={value}" for key, value in SMALL.items() if "method" not in key]
    words = ["--method", "test_contract:FailsDifferently", "--set=runtime.fleet=serial", *chosen]
    assert execute(["run", "--out", str(tmp_path / "run"), *words]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pfedes: no round succeeded: ValueError: ")
    assert last.endswith("The accuracies are those of untrained models")


class FailsDifferently(Own):
    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        raise ValueError(f"{len(client.train)} samples, {client.name[-1]}")


def test_an_exception_at_the_server_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_contract.Own", FailsAtTheServer)
    with pytest.raises(FailedRunError) as failed:
        Federation(small("test_contract:Own"), out=tmp_path / "run").run()
    assert "aggregate() of test_contract:Own failed in round 1: KeyError: 'absent'" in str(
        failed.value
    )
    assert line_of('tensors["absent"]') in str(failed.value)
    assert str(failed.value).endswith(f"Fix that, then run 'pfedes resume {tmp_path / 'run'}'")


class Learns(Own):
    """Sends one number each way."""

    averages_parameters = True

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State({"number": torch.zeros(1)})

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(0.0, {"number": download.tensors["number"] + 1})

    def allowed(self, card: Card, ctx: Context) -> Wire:
        number = WireSpec((required({"number": TensorSpec((1,))}),))
        return Wire(down=number, up=number)


class FailsInCheck(Learns):
    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        raise ValueError("of check")


class FailsInAllowed(Learns):
    def allowed(self, card: Card, ctx: Context) -> Wire:
        raise ValueError("of allowed")


class FailsInChange(Learns):
    def change(self, upload: Received, download: Payload, ctx: Context) -> dict[str, torch.Tensor]:
        raise ValueError("of change")


class FailsToMeasure(Learns):
    """After aggregating, everybody would be sent what is not there."""

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        return True

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State({})

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload({"number": state.tensors["number"]})


class ForgetsToReturn(Learns):
    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> Any:
        """As if the last line was forgotten."""


class SendsABareNumber(Learns):
    def download(self, state: State, card: Card, ctx: Context) -> Any:
        return 0.5


@pytest.mark.parametrize(
    ("kind", "said", "line"),
    [
        (FailsInCheck, "check() of {} failed in round 0: ValueError: of check", '"of check"'),
        (FailsInAllowed, "allowed() of {} failed in round 0: ValueError", '"of allowed"'),
        (FailsInChange, "change() of {} failed in round 1: ValueError", '"of change"'),
        (
            FailsToMeasure,
            "download() of {} failed in round 1: KeyError: 'number'",
            'state.tensors["n',
        ),
        (ForgetsToReturn, "aggregate() of {} failed in round 1: it returned None, expected", ""),
        (SendsABareNumber, "download() of {} failed in round 0: it returned 0.5, expected", ""),
    ],
)
def test_whatever_goes_wrong_in_a_method_at_the_server_is_one_line(
    kind: type[Own], said: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_contract.Own", kind)
    with pytest.raises(FailedRunError) as failed:
        Federation(small("test_contract:Own"), out=tmp_path / "run").run()
    text = str(failed.value)
    assert said.format("test_contract:Own") in text
    assert not line or f"({line_of(line)})" in text
    assert ("Fix that, then run 'pfedes resume" in text) == ("in round 1" in text)


class ReturnsItsLoss(Own):
    def client_round(self, client: Client, download: Payload, ctx: Context) -> Any:
        return 0.5


class KeepsANumber(Own):
    def prepare(self, client: Client, ctx: Context) -> None:
        kept: dict[str, Any] = client.kept
        kept["seen"] = 3


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ReturnsItsLoss, "client_round() returned 0.5, expected an Upload"),
        (KeepsANumber, "client.kept['seen'] is 3, expected a tensor"),
    ],
)
def test_a_method_that_returns_or_keeps_the_wrong_kind_is_told_the_right_one(
    kind: type[Own], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_contract.Own", kind)
    with pytest.raises(FailedRunError) as failed:
        Federation(small("test_contract:Own"), out=tmp_path / "run").run()
    assert said in str(failed.value)


def test_every_column_of_a_client_row_is_reserved() -> None:
    row = client_row(Verdict(Task("", "north", 1, 0, Payload()), "failed", "silent"))
    assert row.keys() <= RESERVED_META


class NotebookConfig(MethodConfig):
    name: str = "mine"


class Mine(Method[NotebookConfig]):
    """As in a notebook: no other process can import it by its name."""

    Config = NotebookConfig
    display_name = "My method"

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(fit_labels(client, ctx))


def test_a_method_object_of_this_program_works_with_the_serial_fleet(tmp_path: Path) -> None:
    run = Federation(small(Mine(), train__rounds=1), out=tmp_path / "run").run()
    assert run.trained
    assert open_run(tmp_path / "run").summary["method"] == "mine"
    assert execute(["report", str(tmp_path / "run")]) == 0
    outcome = Outcome(cells_of(small(), ["mine"], [0], tmp_path)[0], run)
    table = table_of(results_of([outcome], ["mine"]), [])
    assert table.rows[0][0] == "My method"
    assert display_name("test_contract:Variant") == "Variant"  # not its base's
    assert display_name("not_imported:Theirs") == "Theirs"  # and it stays so


class Variant(Mine):
    """Has no display name of its own."""


def test_with_other_fleets_it_says_what_is_missing(tmp_path: Path) -> None:
    config = small(Mine(), runtime__fleet="workers")
    with pytest.raises(ConfigError, match=r"'mine' is defined in this program.*'module:name'"):
        Federation(config, out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


def test_a_method_object_cannot_pass_for_a_built_in_one() -> None:
    class Other(Standalone):
        """Has the name of its base."""

    with pytest.raises(ConfigError, match="Other has the name of the built-in method 'standalone'"):
        small(Other())
