"""A whole federation on one machine: the real processes, certificates and messages."""

import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import tomli_w

from pfedes.children import python, same_imports
from pfedes.config import Config, configure
from pfedes.errors import StoreError
from pfedes.federation import refuse_if_taken
from pfedes.files import writing
from pfedes.fleet.flare.layout import Layout
from pfedes.fleet.flare.serving import Serving, prepare
from pfedes.participant import read_participant
from pfedes.run import Run
from pfedes.seat import Seat

NAMES = ("ada", "ben", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo",
         "mia", "ned", "ola", "pia", "quin", "rob", "sue", "tom")  # fmt: skip
MODELS = ("mlp", "cnn", "attention")
ROUNDS = 3
LEAVING = 60.0  # seconds after the end of the federation
ENDING = 10.0  # seconds after a polite kill

Say = Callable[[str], None]


@dataclass(frozen=True)
class Rehearsal:
    """What was gone through."""

    run: Run
    people: list[tuple[str, str, Seat]]  # name, model, directory


def rehearse(out: Path, participants: int, say: Say, *, rounds: int | None = None) -> Rehearsal:
    """Coordinator and participants, each in processes and a directory of their own."""
    refuse_if_taken(out)
    names = NAMES[:participants]
    config = federation_of(names, ROUNDS if rounds is None else rounds)
    homes = {name: out / name for name in names}
    for number, name in enumerate(names):
        write_participant(homes[name], name, number, participants)
    layout = Layout(out / "federation")
    prepare(layout, config)
    with ExitStack() as stack:
        joined = {}
        for name in names:
            joined[name] = start_joining(layout.kits / name, homes[name], leave=True)
            stack.callback(_end, joined[name])
        run = Serving(layout, say).run()
        for name, process in joined.items():
            _see_off(name, process, homes[name])
    people = []
    for name in names:
        participant = read_participant(homes[name] / "participant.toml")
        model = participant.model.rpartition(":")[2]
        people.append((name, model, Seat(Path(participant.state))))
    return Rehearsal(run, people)


def federation_of(names: tuple[str, ...], rounds: int, port: int = 0) -> Config:
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
        },
    )


def write_participant(home: Path, name: str, number: int, of: int) -> Path:
    """A participant.toml, and beside it code of the participant's own."""
    code = files("pfedes.fleet.flare").joinpath("rehearsed.py").read_text(encoding="utf-8")
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
            python("-m", "pfedes.leash", *words),
            env=same_imports(),
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


def _see_off(name: str, process: "subprocess.Popen[bytes]", home: Path) -> None:
    """Everybody has been told the end, and leaves by itself."""
    try:
        code = process.wait(LEAVING)
    except subprocess.TimeoutExpired:
        raise StoreError(f"{name} has not left yet: see {home / 'join.txt'}") from None
    if code:
        raise StoreError(f"{name} failed: see {home / 'join.txt'}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
