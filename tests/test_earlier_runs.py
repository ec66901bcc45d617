"""What earlier versions left on disk: it opens, resumes, reports, predicts and exports."""

import json
import shutil
import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from golden import TINY
from pfedes import Participant, PfedesError, cli, configure, open_run
from pfedes.config import earlier_digests, validate
from pfedes.config.earlier_digests import earlier_federation_digest, earlier_local_digest
from pfedes.core.payload import Payload, read_payload
from pfedes.core.protocol import Task
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.versions import enrolment_message
from pfedes.fleet.messages import from_task
from pfedes.population.remote import RemotePopulation
from pictures import picture

FIXTURES = Path(__file__).parent / "fixtures"
DIGESTS = json.loads((FIXTURES / "digests.json").read_text())

Execute = Callable[..., str]


@pytest.fixture
def execute(capsys: pytest.CaptureFixture[str]) -> Execute:
    def run(*words: str) -> str:
        code = cli.execute(list(words))
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(FIXTURES / name, tmp_path / name))

    return copy


def use(execute: Execute, run: Path, client: str, side: int = 8) -> None:
    """A model predicts and leaves."""
    whose = [str(run), "--client", client, "--trust-code"]
    (row,) = json.loads(execute("predict", *whose, picture(side), "--json"))
    assert row["probability"] > 0
    execute("export", *whose, "--out", "exported")
    assert Path("exported", "model.safetensors").is_file()
    shutil.rmtree("exported")


def test_an_interrupted_run_continues_without_training_anybody_again(
    execute: Execute, copied: Callable[[str], Path]
) -> None:
    place = copied("interrupted")
    before = open_run(place)
    assert before.manifest.round == 2
    assert len(before.rounds) == 2
    answers = {
        name: before.store.clients.load(before.manifest.run, name, 3).reply
        for name in before.manifest.clients
    }
    use(execute, place, "ada")
    execute("report", str(place), "--trust-code")
    execute("resume", str(place), "--trust-code", "--quiet")
    after = open_run(place)
    assert after.finished
    for row in after.clients[-2:]:
        # Nobody trains in the very same time twice.
        assert row["seconds"] == answers[row["client"]].meta["seconds"]
    use(execute, place, "ben")
    execute("resume", str(place), "--rounds", "4", "--quiet")
    assert open_run(place).manifest.round == 4
    execute("report", str(place), "--trust-code")


def test_a_run_that_had_not_begun_begins(
    execute: Execute, copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place = copied("untrained")
    use(execute, place, "client-0001", 16)
    execute("report", str(place), "--trust-code")
    execute("resume", str(place), "--trust-code", "--quiet")
    assert open_run(place).finished


def test_a_comparison_is_complete_and_can_be_extended(
    execute: Execute, copied: Callable[[str], Path]
) -> None:
    place = copied("compare")
    cells = sorted(place.glob("*/seed-0"))
    assert [cell.parent.name for cell in cells] == ["lg_fedavg", "pfedes"]
    for cell in cells:
        assert open_run(cell).finished
        use(execute, cell, "ada")
    execute("report", str(place), "--trust-code")
    execute("resume", str(cells[0]), "--rounds", "2", "--trust-code", "--quiet")
    config = cells[1] / "config.toml"
    words = ["compare", str(config), "--methods", "pfedes", "--set", "train.rounds=2"]
    done = ["--set", "method.extractor_epochs=5", "--out", str(place), "--quiet"]
    began = (cells[1] / "state" / "manifests" / "00001.json").read_bytes()
    execute(*words, *done)
    assert open_run(cells[1]).manifest.round == 2
    assert (cells[1] / "state" / "manifests" / "00001.json").read_bytes() == began


@pytest.mark.parametrize("method", ["pfedes", "lg_fedavg"])
def test_a_participant_continues_from_its_state(
    method: str, execute: Execute, copied: Callable[[str], Path]
) -> None:
    name = "state" if method == "pfedes" else "state-lg_fedavg"
    place = copied(name)
    seat = ParticipantState(place)
    record = seat.record()
    assert record is not None
    assert (record.accepted, record.finished) == (2, True)
    use(execute, place, "ada")
    personal = seat.personal(trust_code=True)
    assert record.scores is not None
    assert personal.facts.scores.plain == record.scores
    sent = len(seat.sent())

    # The same people, whose paths are relative: the digests that they stored hold them.
    chosen: dict[str, Any] = {
        "method.name": method,
        "federation.participants": ["ada", "ben"],
        "evaluate.after_aggregation": method == "lg_fedavg",
    }
    terms = {k: v for k, v in TINY.items() if method == "pfedes" or not k.startswith("method.")}
    config = configure(settings={**terms, **chosen})
    person = Participant(
        name="ada", model="tiny:dense", data="tiny:ada_images", methods=(method,), state=name
    )
    guest = ParticipantHandler(person, config.federation)
    try:
        assert guest.handle(enrolment_message("ada", config.to_toml())).meta["kind"] == "reply"
        stored = seat.clients.load("run", "ada", 2)
        download = _download_of(seat, stored.task["download"])
        again = Task("run", "ada", 2, 1, download)
        guest = _allowing_rollback(guest)
        answer = guest.handle(from_task("answer", again))
        # It is the stored answer: nobody trains in the very same time twice.
        kept = stored.reply.meta["seconds"]
        assert seat.clients.load("run", "ada", 2).reply.meta["seconds"] == kept
        assert answer.meta["kind"] == "reply"
        further = guest.handle(from_task("answer", Task("run", "ada", 3, 2, download)))
        assert further.meta["kind"] == "reply"
    finally:
        guest.stop()
    assert len(seat.sent()) == sent + 3
    assert seat.clients.versions("run", "ada") == [1, 2, 3]


def _download_of(seat: ParticipantState, digest: Any) -> Payload:
    """What the participant was sent, which it keeps."""
    download = read_payload(seat.state / "downloads" / "run" / "00002.safetensors")
    assert download.digest() == digest
    return download


def _allowing_rollback(guest: ParticipantHandler) -> ParticipantHandler:
    guest.participant = guest.participant.model_copy(update={"rollback": True})
    return guest


@pytest.mark.parametrize("number", range(len(DIGESTS)))
def test_digests_of_earlier_versions_are_known_again(number: int) -> None:
    recorded = DIGESTS[number]
    config = validate(tomllib.loads(recorded["config"]))
    assert earlier_federation_digest(config) == recorded["federation"]
    assert earlier_local_digest(config) == recorded["local"]
    if recorded["terms"] is not None:
        assert RemotePopulation(config.federation).digest == recorded["terms"]


def test_a_run_with_newer_keys_is_no_earlier_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is not in the list of those that there were must be at its default."""
    keys = earlier_digests.SECTIONS["partition"] - {"alpha"}
    monkeypatch.setitem(earlier_digests.SECTIONS, "partition", keys)
    assert earlier_federation_digest(configure())
    newer = configure(settings={"partition.alpha": 0.7})
    assert earlier_federation_digest(newer) == earlier_local_digest(newer) == ""
    own = earlier_digests.METHODS["pfedes"] - {"mu"}
    monkeypatch.setitem(earlier_digests.METHODS, "pfedes", own)
    newer = configure(settings={"method.mu": 0.2})
    assert earlier_local_digest(newer) == ""
    assert earlier_federation_digest(newer)  # the method's keys may change in the life of a run


def test_a_manifest_of_a_newer_version_is_not_called_damaged(
    copied: Callable[[str], Path],
) -> None:
    place = copied("interrupted")
    manifest = open_run(place).manifest
    path = place / "state" / "manifests" / "00002.json"

    text = manifest.model_dump_json()[:-1] + ', "spent": 1.5}'
    head = {"format": 1, "sha256": sha256(text.encode()).hexdigest()}
    path.write_text(f'{json.dumps(head)[:-1]}, "manifest": {text}}}\n')
    with pytest.raises(PfedesError, match=r"newer pfedes: this one does not know 'spent'; update"):
        open_run(place)
    path.write_text(path.read_text().replace('"spent": 1.5', '"spent": 1.6'))
    with pytest.raises(PfedesError, match="do not match their checksum"):
        open_run(place)
