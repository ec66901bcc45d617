"""A whole federation on one machine: the real processes, certificates and messages.

Its people are ours, who share the digits, or those of a configuration, with models and data of
their own.
"""

import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import Any

import tomli_w

from pfedes.config import Config, configure
from pfedes.config.participant import Participant, read_participant
from pfedes.deploy.coordinator.fleet import begun, is_finished
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.serve import Serving, prepare
from pfedes.deploy.coordinator.terms import check_terms
from pfedes.deploy.participant.state import ParticipantState
from pfedes.errors import ConfigError, FailedRunError
from pfedes.federation.directory import refuse_if_taken
from pfedes.files import writing
from pfedes.fleet.process import LEASH, python, same_imports
from pfedes.results.run import Run

NAMES = ("ada", "ben", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo",
         "mia", "ned", "ola", "pia", "quin", "rob", "sue", "tom")  # fmt: skip
MODELS = ("mlp", "cnn", "attention")
ROUNDS = 3
LEAVING = 300.0  # seconds after the end of the federation: on a busy machine it takes minutes
ENDING = 10.0  # seconds after a polite kill
COORDINATOR = "federation"  # the coordinator's directory, beside those of the participants

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})

Say = Callable[[str], None]


@dataclass(frozen=True)
class Rehearsal:
    """What was gone through."""

    run: Run
    people: list[tuple[str, str, ParticipantState]]  # name, model, directory
    lost: list[str]  # why participants did not stay until the end


def rehearse(
    out: Path,
    participants: int,
    say: Say,
    *,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Rehearsal:
    """Coordinator and participants of ours, each in processes and a directory of their own."""
    names = NAMES[:participants]
    config = federation_of(names, ROUNDS if rounds is None else rounds, settings=settings or {})

    def write(home: Path, name: str) -> None:
        write_participant(home, name, names.index(name), participants)

    return _gone_through(out, config, write, say)


def rehearse_with(out: Path, config: Config, say: Say) -> Rehearsal:
    """The same with the participants of a configuration, who have models and data."""
    people = {person.name: person for person in config.participants}

    def write(home: Path, name: str) -> None:
        write_file(home, people[name], config.method.name)

    return _gone_through(out, terms_of(config), write, say)


def _gone_through(
    out: Path, config: Config, write: Callable[[Path, str], None], say: Say
) -> Rehearsal:
    refuse_if_taken(out)
    names = config.federation.participants
    homes = {name: out / name for name in names}
    for name, home in homes.items():
        write(home, name)
    layout = Layout(out / COORDINATOR)
    prepare(layout, config)
    with ExitStack() as stack:
        joined = {}
        for name in names:
            joined[name] = start_joining(layout.kits / name, homes[name], leave=True)
            stack.callback(_end, joined[name])
        run = Serving(layout, say, lambda: _check_enough(layout, joined, homes)).run()
        ends = [_see_off(name, process, homes[name]) for name, process in joined.items()]
    people = []
    for name in names:
        participant = read_participant(homes[name] / "participant.toml")
        model = participant.model.rpartition(":")[2]
        people.append((name, model, ParticipantState(Path(participant.state))))
    return Rehearsal(run, people, [end for end in ends if end])


def federation_of(
    names: tuple[str, ...], rounds: int, port: int = 0, settings: Mapping[str, Any] = NO_SETTINGS
) -> Config:
    """Terms for people who share the ten digits."""
    return configure(
        rounds=rounds,
        settings={
            "federation.participants": list(names),
            "federation.classes": [str(digit) for digit in range(10)],
            "federation.mean": [0.3] * 3,
            "federation.std": [0.38] * 3,
            "federation.port": port or free_port(),
            "federation.timeout": 120,
            "train.batch_size": 32,
            "method.extractor_epochs": 1,
            **settings,
        },
    )


def terms_of(config: Config) -> Config:
    """What the participants of a configuration would agree on, to meet on this machine.

    Raises ConfigError if they cannot be rehearsed with.
    """
    names = tuple(person.name for person in config.participants)
    if not names:
        raise ConfigError(
            "a rehearsal with a configuration needs participants who bring their own data: set "
            "partition.kind = 'natural', or name their files under participants"
        )
    if len(names) > len(NAMES):
        raise ConfigError(
            f"a rehearsal takes at most {len(NAMES)} participants, each with processes of its own; "
            f"found {len(names)}"
        )
    if COORDINATOR in names:
        raise ConfigError(
            f"{COORDINATOR!r} cannot be a participant's name: it is the coordinator's"
        )
    meeting = {"participants": names, "host": "localhost", "port": free_port()}
    terms = config.federation.model_copy(update=meeting)
    found = config.model_copy(update={"participants": (), "federation": terms})
    check_terms(found)
    return found


def write_file(home: Path, person: Participant, method: str) -> None:
    """The participant.toml as its owner has it; its state stays in the rehearsal.

    The others have other keys in a rehearsal, so that their fingerprints would not fit. Sites of a
    table consent to all methods; nobody would agree to more than is asked.
    """
    asked = tuple(name for name in person.methods if name == method) or person.methods
    here = person.model_copy(update={"state": "state", "peers": {}, "methods": asked})
    tree = here.model_dump(mode="json", exclude_defaults=True)
    with writing(home):
        home.mkdir(parents=True)
        (home / "participant.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")


def write_participant(home: Path, name: str, number: int, of: int) -> Path:
    """A participant.toml, and beside it code of the participant's own."""
    code = files("pfedes.deploy").joinpath("_rehearsal_participant.py").read_text(encoding="utf-8")
    own = code.replace("MINE, OF = 0, 3", f"MINE, OF = {number}, {of}")
    model = MODELS[number % len(MODELS)]
    tree = {"name": name, "model": f"own.py:{model}", "data": "own.py:data", "state": "state"}
    path = home / "participant.toml"
    with writing(home):
        home.mkdir(parents=True)
        (home / "own.py").write_text(own, encoding="utf-8")
        path.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return path


def start_joining(kit: Path, home: Path, *, leave: bool) -> "subprocess.Popen[bytes]":
    """`pfedes join` as its owner types it; it ends when this process is gone, however it went."""
    words = ["join", str(kit), str(home / "participant.toml"), *(["--leave"] if leave else [])]
    with writing(home):
        output = (home / "join.txt").open("ab")
    with output:
        return subprocess.Popen(
            python("-m", "pfedes", *words),
            env={**same_imports(), LEASH: "0"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C is for this process alone
        )


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _check_enough(
    layout: Layout, joined: Mapping[str, "subprocess.Popen[bytes]"], homes: Mapping[str, Path]
) -> None:
    """Nobody comes back here, as others would: with too few, a federation waits forever."""
    left = [name for name, process in joined.items() if process.poll() is not None]
    if not left:
        return
    run = begun(layout)
    needed = len(joined) if run is None else run.config.fewest_uploads
    if len(joined) - len(left) < needed and not (run and is_finished(run, run.config)):
        when = "before the first round" if run is None else f"after round {run.manifest.round}"
        why = "; ".join(_end_of(name, joined[name].returncode, homes[name]) for name in left)
        raise FailedRunError(f"too few participants {when}: {why}")


def _see_off(name: str, process: "subprocess.Popen[bytes]", home: Path) -> str:
    """Everybody has been told the end, and leaves by itself; '' or what happened instead."""
    try:
        code = process.wait(LEAVING)
    except subprocess.TimeoutExpired:
        return f"{name} has not left yet: see {home / 'join.txt'}"
    return _end_of(name, code, home) if code else ""


def _end_of(name: str, code: int, home: Path) -> str:
    happened = f"was ended by {Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{name} {happened}: see {home / 'join.txt'}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
