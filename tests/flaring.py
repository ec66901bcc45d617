"""A federation over loopback: real processes, certificates and kills, in one directory."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pfedes import Federation, Run, configure, open_run
from pfedes.config.participant import read_participant
from pfedes.core.payload import Payload
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.rehearsal import start_joining
from pfedes.federation.loop import Selector, uniform
from running import timeless

NAMES = ["ada", "ben", "cleo"]
WITHHELD = {"flops", "metadata_up"}  # participants of a federation say less than clients here
PATIENCE = 240.0  # seconds for anything that takes a moment on an idle machine

TROUBLE = """

# Trouble in training, when a file in this directory asks for it.
import time
from pathlib import Path

HERE = Path(__file__).parent
CHECKING = 8  # steps: a model is tried out before it takes part


class Troubled(nn.Module):
    steps = 0

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        Troubled.steps += self.training
        if self.training and Troubled.steps > CHECKING:
            while (HERE / "hold").exists():
                (HERE / "held").touch()
                time.sleep(0.05)
            if (HERE / "raise").exists():
                (HERE / "raise").unlink()
                raise ValueError("patient 7")
        return self.inner(x)


def troubled(classes, shape):
    return Troubled({model}(classes, shape))
"""


def eventually(
    condition: Callable[[], Any], what: str, seconds: float = PATIENCE, every: float = 0.1
) -> Any:
    """What a condition gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError(f"waited for {seconds:.0f} s: {what}")


def processes(*words: str) -> list[int]:
    """The processes whose command line has all these words."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                line = (place / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(int(place.name))
    return found


def kill(*words: str) -> None:
    """kill -9 for all of them, of which there must be one."""
    pids = eventually(lambda: processes(*words), f"a process of {words}", 30)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Ground:
    """One provisioned federation, whose participants stay joined from test to test."""

    def __init__(self, rehearsal: Path, home: Path) -> None:
        """What a rehearsal made, elsewhere: with its kits and people, and without its run."""
        shutil.copytree(rehearsal, home)
        self.home = home
        self.layout = Layout(home / "federation")
        for name in NAMES:
            shutil.rmtree(self.seat(name).directory)
            (home / name / "join.txt").unlink()
        self.terms = self.layout.config.read_text()
        self._joined: dict[str, subprocess.Popen[bytes]] = {}

    def seat(self, name: str) -> ParticipantState:
        return ParticipantState(self.home / name / "state")

    def join(self, name: str, *, leave: bool = False) -> "subprocess.Popen[bytes]":
        """`pfedes join` with a model that may get into trouble."""
        home = self.home / name
        file = home / "participant.toml"
        model = read_participant(file).model.rpartition(":")[2]
        with (home / "own.py").open("a") as code:
            code.write(TROUBLE.replace("{model}", model))
        text = file.read_text().replace(f"own.py:{model}", "own.py:troubled")
        if name == "ada":
            text += 'methods = ["pfedes", "fd"]\n'
        file.write_text(text)
        return self.rejoin(name, leave=leave)

    def rejoin(self, name: str, *, leave: bool = False) -> "subprocess.Popen[bytes]":
        """`pfedes join` once more, after `part`."""
        process = start_joining(self.layout.kits / name, self.home / name, leave=leave)
        self._joined[name] = process
        return process

    def joined(self, name: str) -> "subprocess.Popen[bytes]":
        return self._joined[name]

    def part(self, name: str) -> None:
        """Kills `pfedes join`, and waits until all that it started is gone."""
        _end(self._joined.pop(name))
        place = str(self.seat(name).directory)
        eventually(lambda: not processes(place), f"the end of {name}'s processes", 60)

    def begin(self, **settings: object) -> None:
        """No run yet, and these terms."""
        shutil.rmtree(self.layout.run, ignore_errors=True)
        for file in (self.layout.told, self.layout.trouble, self.layout.strikes):
            file.unlink(missing_ok=True)
        for flag in [*self.home.glob("*/hold"), *self.home.glob("*/raise")]:
            flag.unlink()  # of a test that failed
        self.layout.config.write_text(self.terms)
        self.change(**{"runtime__report": False, **settings})

    def change(self, **settings: object) -> None:
        chosen = {key.replace("__", "."): value for key, value in settings.items()}
        self.layout.config.write_text(configure(self.layout.config, settings=chosen).to_toml())

    def is_joined(self, name: str) -> bool:
        """Whether its model passed the check, so that only the coordinator is missing."""
        return "is looking for the coordinator" in (self.home / name / "join.txt").read_text()

    @contextmanager
    def serving(self) -> Iterator["subprocess.Popen[bytes]"]:
        """`pfedes serve` as the coordinator types it."""
        with (self.home / "serve.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pfedes", "serve", str(self.layout.config), "--out",
                 str(self.layout.directory)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        return (self.home / "serve.txt").read_text()

    def finished(self, coordinator: "subprocess.Popen[bytes]") -> Run:
        """The run, when the coordinator has left by itself."""
        try:
            assert coordinator.wait(PATIENCE) == 0, self.said()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still at work: {self.said()}") from None
        return open_run(self.layout.run)

    @property
    def round(self) -> int:
        """The last committed one; -1 before the run is there."""
        if not (self.layout.run / "state").is_dir():
            return -1
        return open_run(self.layout.run).manifest.round

    @property
    def run_id(self) -> str:
        return open_run(self.layout.run).manifest.run

    def hold(self, *names: str) -> None:
        """From now on their training stands still."""
        for name in names:
            (self.home / name / "held").unlink(missing_ok=True)
            (self.home / name / "hold").touch()

    def await_held(self, *names: str) -> None:
        """Until all of them are in the middle of a round."""
        for name in names:
            eventually((self.home / name / "held").exists, f"{name} trains")

    def hold_in_round_2(self, *names: str, while_waiting_for: str) -> int:
        """Until all of them are in the middle of round 2; the round that is committed then.

        Somebody else is slow in round 1, so that they cannot be caught too late.
        """
        self.hold(while_waiting_for)
        self.await_held(while_waiting_for)
        eventually(lambda: all(self.has_answered(name, 1) for name in names), "their answers")
        self.hold(*names)
        self.release(while_waiting_for)
        self.await_held(*names)
        assert self.round == 1
        return 1

    def has_answered(self, name: str, round: int) -> bool:
        """Whether it answered this round of the present run."""
        record = self.seat(name).record()
        return (
            record is not None and record.run == self.run_id and round in self.seat(name).answered()
        )

    def release(self, name: str) -> None:
        (self.home / name / "hold").unlink()

    def states(self) -> dict[str, str]:
        """Of everybody the keyed digest of the accepted state, from its own directory."""
        seats = {name: self.seat(name) for name in NAMES}
        return {name: seat.answers.keyed(accepted(seat, name)) for name, seat in seats.items()}

    def end(self) -> None:
        while self._joined:
            _end(self._joined.popitem()[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()  # closes its leash, too


def accepted(seat: ParticipantState, name: str) -> str:
    record = seat.record()
    assert record is not None
    return Payload(seat.clients.load(record.run, name, record.accepted).state).digest()


def simulated(
    home: Path, out: Path, *names: str, select: Selector = uniform, **changes: object
) -> Run:
    """What participants would have got in one process, where nobody is disturbed."""
    people = [read_participant(home / name / "participant.toml") for name in names or NAMES]
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    settings |= {"federation.participants": []}
    settings |= {"runtime.fleet": "serial", "runtime.report": False}
    settings |= {"aggregation.max_norm": 0}  # what nobody honest reaches changes nothing
    file = home / "federation" / "federation.toml"
    config = configure(file, participants=people, settings=settings)
    return Federation(config, out=out, select=select).run()


def who_answered(run: Run) -> Selector:
    """Selects in each round those who answered in this run, who are all unless one was away."""
    rounds = iter(run.rounds)

    def select(names: Sequence[str], count: int, rng: object) -> list[str]:
        round = next(rounds)["round"]
        rows = [row for row in run.clients if row["round"] == round]
        return [row["client"] for row in rows if row["status"] == "ok"]

    return select


def comparable(run: Run) -> list[dict[str, Any]]:
    rows = [timeless(row) for row in run.rounds]
    less = set() if run.config.privacy.metadata == "all" else {"loss"}
    return [{key: row[key] for key in row.keys() - WITHHELD - less} for row in rows]


def standings(run: Run) -> dict[str, Any]:
    """Without what participants keep to themselves: plain digests, and scores class by class."""
    return {
        name: standing.model_copy(
            update={
                "digest": "",
                "scores": standing.scores and standing.scores.plain,
                "local": standing.local and standing.local.plain,
            }
        )
        for name, standing in run.manifest.clients.items()
    }


def assert_same(run: Run, other: Run) -> None:
    assert comparable(run) == comparable(other)  # first: it says in which round they part
    assert standings(run) == standings(other)
    assert run.manifest.server_digest == other.manifest.server_digest
