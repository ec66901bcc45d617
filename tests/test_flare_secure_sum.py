"""A federation with a secure sum, with real processes: as its simulation, and nobody's upload."""

import base64
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from commands import process
from flaring import NAMES, assert_same, simulated
from pfedes import open_run
from pfedes.core.protocol import SUMMAND
from pfedes.deploy.participant.state import ParticipantState
from pfedes.securesum.masking import Integers
from running import rows

ROUNDS = 2


def rehearsed(home: Path, *privacy: str) -> Path:
    """A directory in which `pfedes rehearse` was gone through, with a secure sum."""
    chosen = ("secure_sum=true", *privacy)
    settings = [part for each in chosen for part in ("--set", f"privacy.{each}")]
    done = process("rehearse", "--rounds", str(ROUNDS), "--out", str(home), *settings)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("summed") / "rehearsal"
    return rehearsed(home, "clip=10", "metadata=scores")


def test_a_rehearsal_is_its_simulation_bit_for_bit(summed: Path, tmp_path: Path) -> None:
    run = open_run(summed / "federation" / "run")
    assert_same(run, simulated(summed, tmp_path / "simulated"))
    assert run.summary["mean_accuracy"] > run.summary["initial_accuracy"] + 0.3
    assert run.summary["floats_up"] == ROUNDS * len(NAMES) * 444
    assert not run.summary["rejected_uploads"]
    assert "nonce" not in run.clients[0]
    assert {row["n"] for row in run.clients} == {row["loss"] for row in run.clients} == {None}
    assert {card.samples for card in run.store.cards(run.manifest)} == {1}
    for name in NAMES:
        seat = ParticipantState(summed / name / "state")
        sent = [line for line in seat.sent() if line["kind"] in ("answer", "mask", "open")]
        assert [line["kind"] for line in sent] == ["answer", "mask", "open"] * ROUNDS
        assert [line["floats"] for line in sent if line["kind"] == "answer"] == [0] * ROUNDS
        assert {line["values"].get("up/members") for line in sent} == {None, len(NAMES)}
        joined = (summed / name / "join.txt").read_text()
        assert "your fingerprint, for the others' [peers]: sha256:" in joined
        assert "the coordinator made your key" in joined
        assert not list((seat.state / "sum").glob("*/key"))  # nothing can be opened any more
    assert "sums of at least 3" in (run.directory / "report.html").read_text()


@pytest.mark.repeat
def test_participants_add_their_noise_inside_the_sum(tmp_path: Path) -> None:
    """The same processes once more, with noise and without any metadata."""
    noise = ("mode=distributed", "noise=0.05", "clip=1", "metadata=none")
    home = rehearsed(tmp_path / "rehearsal", *noise)
    run = open_run(home / "federation" / "run")
    assert [row["status"] for row in run.rounds] == ["ok"] * ROUNDS
    assert run.summary["privacy"]["releases"] == [ROUNDS] * len(NAMES)
    assert run.summary["accuracies"] == []
    assert not list((home / "federation").rglob("noise.key"))
    for name in NAMES:
        seat = ParticipantState(home / name / "state")
        assert len(rows(seat.state / "privacy.jsonl")) == ROUNDS
        record = seat.record()
        assert record is not None
        assert record.scores is not None  # of its own, which nobody was told
        left = {key for line in seat.sent() for key in line["values"]}
        assert not left & {"up/loss", "up/samples", "up/test_correct", "test_correct"}


def test_nothing_at_the_coordinator_holds_what_one_participant_has_learned(summed: Path) -> None:
    """Every file of the federation's directory, logs and FLARE's own, is searched."""
    files = [path.read_bytes() for path in (summed / "federation").rglob("*") if path.is_file()]
    run = open_run(summed / "federation" / "run").manifest.run
    for name in NAMES:
        seat = ParticipantState(summed / name / "state")
        for round in range(1, ROUNDS + 1):
            own = seat.clients.load(run, name, round).reply.tensors[SUMMAND].numpy()
            weight = int(own[-1])
            forms = [form for values in (own, own // weight) for form in forms_of(values)]
            assert not [form for form in forms for data in files if form in data]
            # The search finds it where it is.
            stored = seat.clients.path(run, name, round).read_bytes()
            assert any(form in stored for form in forms)


def forms_of(values: Integers) -> list[bytes]:
    """Some of the numbers as bytes, in base64 wherever they begin in it, and as text."""
    some = values[values != 0][:4]
    raw = some.astype("<i8").tobytes()
    encoded = [base64.b64encode(bytes(shift) + raw)[4 : -4 or None] for shift in range(3)]
    large = max(some.tolist(), key=abs)
    return [raw, raw.hex().encode(), *encoded, str(large).encode()]
