"""What participants of a federation keep to themselves, and how everybody else does without."""

import hmac
import json
import stat
from pathlib import Path

import pytest

from guests import Remote, ada, enrolled, task, terms
from pfedes import Federation, Listener, Run, cli, configure
from pfedes.cli._display import print_result
from pfedes.core.payload import Payload, Value
from pfedes.core.protocol import REPLY_META, WITHHELD, Reply
from pfedes.deploy.participant.handler import ParticipantHandler, own_config
from pfedes.errors import DamageError
from pfedes.federation.admission import Admission
from pfedes.fleet.messages import from_task
from pfedes.population.simulation import Simulation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("withheld")
    config = terms(train__rounds=2, evaluate__targets=[0.001])
    fleet = Remote(config, place)
    return Federation(config, out=place / "run", fleet=lambda *_: fleet).run()


def test_a_reply_tells_neither_the_work_nor_the_plain_digest(guest: ParticipantHandler) -> None:
    enrolled(guest)
    left = guest.handle(from_task("answer", task(1, 0)))
    common = {f"up/{key}" for key in REPLY_META.keys() - WITHHELD}
    assert left.meta.keys() == {"kind", "client", "up/zeros", *common}
    # What was kept is what an accepted reply says in a simulation.
    stored = guest.seat.clients.load("run", "ada", 1)
    plain = Payload(stored.state).digest()
    (answer,) = guest.seat.answers.all()
    assert (answer.flops, answer.seconds) == (
        stored.reply.meta["flops"],
        stored.reply.meta["seconds"],
    )
    key = guest.seat.directory / "digest.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert left.meta["up/state"] == hmac.digest(key.read_bytes(), plain.encode(), "sha256").hex()
    assert plain not in (guest.seat.directory / "sent.jsonl").read_text()

    # Asked again, it says the same and counts nothing twice; another round is another answer.
    assert guest.handle(from_task("answer", task(1, 0))).digest() == left.digest()
    guest.handle(from_task("answer", task(2, 1)))
    assert [(a.round, a.base) for a in guest.seat.answers.all()] == [(1, 0), (2, 1)]
    key.write_bytes(b"short")
    failed = guest.handle(from_task("answer", task(3, 2)))
    assert failed.meta["kind"] == "failure"
    with pytest.raises(DamageError, match=r"digest\.key is damaged: remove it"):
        guest.seat.answers.keyed("x")


def test_an_upload_with_more_than_the_list_is_rejected() -> None:
    """A server of a federation does not store what it need not know."""
    simulation = Simulation(own_config(terms().model_dump(mode="json"), ada(Path("none"))))
    card, ctx = simulation.population.card("ada", []), simulation.context(1)
    asked = task(1, 0)
    meta: dict[str, Value] = {
        "run": "run",
        "round": 1,
        "base": 0,
        "samples": 320,
        "loss": 1.0,
        "zeros": 0.0,
        "val_correct": 1,
        "val_total": 2,
        "test_correct": 1,
        "test_total": 2,
        "state": "0" * 64,
    }
    verdicts: list[tuple[dict[str, Value], str]] = [
        ({}, "ok"),
        ({"flops": 1}, "rejected"),
        ({"seconds": 1.0}, "rejected"),
    ]
    for more, status in verdicts:
        admission = Admission([asked], {"ada": card}, simulation.method, ctx, over_network=True)
        reply = Reply("ada", Payload(asked.download.tensors, {**meta, **more}))
        assert admission.examine(reply).status == status


def test_everything_that_reads_rows_copes(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {(row["flops"], row["seconds"]) for row in run.clients} == {(None, None)}
    assert [row["flops"] for row in run.rounds] == [None, None]
    assert run.summary["flops"] is None
    (target,) = run.summary["targets"]
    assert (target["round"], target["flops"]) == (1, None)
    page = (run.directory / "report.html").read_text()
    assert "FLOP withheld" in page
    assert ">None<" not in page
    print_result(run)
    assert "FLOP withheld in" in capsys.readouterr().out

    # Beside a simulation of the same.
    people = [ada(tmp_path / name).model_copy(update={"name": name}) for name in ("ada", "ben")]
    settings = {"federation.participants": [], "runtime.fleet": "serial"}
    config = configure(run.directory / "config.toml", participants=people, settings=settings)
    alone = Federation(config, out=tmp_path / "alone", listener=Listener()).run()
    assert alone.summary["flops"] > 0
    assert alone.summary["mean_accuracy"] == run.summary["mean_accuracy"]
    words = ["report", str(run.directory), str(alone.directory), "--out", "both.html"]
    assert cli.execute(words) == 0
    assert "withheld" in Path("both.html").read_text()
    assert json.loads((run.directory / "summary.json").read_text())["flops"] is None
