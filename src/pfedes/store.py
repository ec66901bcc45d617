"""Run and client state on disk. The store is the checkpoint.

A client commits {state, reply} of a round as one file before it answers. The run commits a round
by renaming its manifest into place; what no kept manifest names is not part of the run.

    state/manifests/00003.json                        the commit of round 3
    state/server/00003.safetensors                    what the server holds after round 3
    state/roster-<digest>.json                        the clients' cards
    state/clients/<client>/<run id>/00003.safetensors   the client after its work in round 3
"""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from pfedes.client import Card, Scores
from pfedes.errors import StoreError, WireError
from pfedes.files import append, sync_directory, write_atomically
from pfedes.payload import Payload, State, Value, decode, encode, under, within
from pfedes.section import Section

FORMAT = 1
WORKERS_LOCK = "workers"  # held, shared, by every worker process that may write client versions


@dataclass(frozen=True)
class Version:
    """A client after a round: its state, the task it was given, and what it answered."""

    state: dict[str, Tensor]
    task: dict[str, Value]
    reply: Payload


class ClientStore:
    """All versions of all clients below one directory. A client that never trained has none."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def versions(self, run: str, client: str) -> list[int]:
        return sorted(int(path.stem) for path in self._home(run, client).glob("*.safetensors"))

    def load(self, run: str, client: str, version: int) -> Version:
        payload = _read(self._path(run, client, version))
        return Version(
            state=within("state/", payload.tensors),
            task=within("task/", payload.meta),
            reply=Payload(within("reply/", payload.tensors), within("reply/", payload.meta)),
        )

    def commit(self, run: str, client: str, round: int, version: Version) -> None:
        tensors = under("state/", version.state) | under("reply/", version.reply.tensors)
        meta = under("task/", version.task) | under("reply/", version.reply.meta)
        path = self._path(run, client, round)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode(Payload(tensors, meta)))

    def discard(self, run: str, client: str, versions: Iterable[int]) -> None:
        for version in versions:
            self._path(run, client, version).unlink(missing_ok=True)

    def _home(self, run: str, client: str) -> Path:
        return self.root / client / run

    def _path(self, run: str, client: str, version: int) -> Path:
        return self._home(run, client) / f"{version:05d}.safetensors"


class Standing(Section):
    """Where a client stands: its accepted version and its current scores."""

    version: int = 0
    digest: str = ""
    scores: Scores  # the headline's
    local: Scores  # right after local training


class Manifest(Section):
    """The commit of one round. Never changed once written."""

    format: int = FORMAT
    run: str
    round: int
    status: Literal["ok", "failed"]
    initial_accuracy: float
    best_round: int | None  # by validation
    best_validation: float | None
    roster: str  # file names, relative to state/
    server: str
    metrics: dict[str, int]  # committed length of each metrics file
    clients: dict[str, Standing]

    def ends(self, rounds: int, patience: int) -> bool:
        """Whether all rounds are done, or patience has run out."""
        waited = self.round - self.best_round if self.best_round is not None else 0
        return self.round >= rounds or 0 < patience <= waited


class RunStore:
    """One run directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.clients = ClientStore(self.state / "clients")
        self._manifests: dict[int, Manifest] = {}  # they never change: read each once

    @classmethod
    def open(cls, directory: Path) -> "RunStore":
        store = cls(directory)
        if not (store.state / "manifests").is_dir():
            raise StoreError(f"{directory} is not a run directory: it has no state/manifests")
        return store

    @classmethod
    def create(
        cls,
        directory: Path,
        files: Mapping[str, str],
        cards: Iterable[Card],
        state: State,
        manifest: Manifest,
    ) -> "RunStore":
        """Makes the run directory appear by one rename, with manifest 0 in it."""
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        except OSError as error:
            raise StoreError(f"cannot write to {directory.parent}: {error.strerror}") from None
        try:
            work.chmod(0o755)  # mkdtemp made it for the owner alone
            store = cls(work)
            for place in ("manifests", "server", "clients"):
                (store.state / place).mkdir(parents=True)
            for name, text in files.items():
                write_atomically(work / name, text.encode())
            store.write_roster(cards)
            store.write_server(manifest.server, state)
            store.write_manifest(manifest)
            os.rename(work, directory)  # refuses a directory that is there and not empty
        except OSError as error:
            raise StoreError(f"cannot create {directory}: {error.strerror}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
        sync_directory(directory.parent)
        return cls(directory)

    def environment(self) -> dict[str, Any]:
        """What the run began on, and the digest of its data."""
        path = self.directory / "environment.json"
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            return {**found, "data": found["data"], "torch_build": found["torch_build"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is missing or damaged: {error}") from None

    def rounds(self) -> list[int]:
        """The rounds whose manifests are kept, oldest first."""
        names = (path.stem for path in (self.state / "manifests").glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def manifest(self, round: int | None = None) -> Manifest:
        """The commit of a round; without a number, of the last."""
        kept = self.rounds()
        if not kept:
            raise StoreError(f"{self.directory} has no manifest: the run is damaged")
        if round is not None and round not in kept:
            names = ", ".join(map(str, kept))
            raise StoreError(f"round {round} of {self.directory} is not kept; kept: {names}")
        number = kept[-1] if round is None else round
        if number not in self._manifests:
            self._manifests[number] = _read_manifest(self._manifest_path(number))
        return self._manifests[number]

    def write_manifest(self, manifest: Manifest) -> None:
        path = self._manifest_path(manifest.round)
        write_atomically(path, manifest.model_dump_json().encode())
        self._manifests[manifest.round] = manifest

    def server_state(self, manifest: Manifest) -> State:
        return _read(self.state / manifest.server)

    def write_server(self, name: str, state: State) -> None:
        write_atomically(self.state / name, encode(state))

    def cards(self, manifest: Manifest) -> list[Card]:
        path = self.state / manifest.roster
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        if manifest.roster != roster_name(data):
            raise StoreError(f"{path} is damaged: contents do not match their checksum")
        return [_card(raw) for raw in json.loads(data)]

    def write_roster(self, cards: Iterable[Card]) -> str:
        data = roster_bytes(cards)
        name = roster_name(data)
        write_atomically(self.state / name, data)
        return name

    def append(self, name: str, rows: Iterable[Mapping[str, Any]], at: int) -> int:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        return append(self.directory / name, lines.encode(), at)

    def rows(self, name: str, length: int) -> list[dict[str, Any]]:
        """The committed rows of a metrics file."""
        path = self.directory / name
        data = path.read_bytes()[:length] if path.exists() else b""
        if len(data) < length:
            raise StoreError(f"{path} is shorter than the {length} bytes that were committed")
        try:
            return [json.loads(line) for line in data.splitlines()]
        except ValueError as error:
            raise StoreError(f"{path} is damaged: {error}") from None

    def tidy(self, keep_rounds: int) -> None:
        """Removes the manifests that are not kept, and all files that only they name."""
        rounds = self.rounds()
        kept = set(rounds[-keep_rounds:])
        last = self.manifest(rounds[-1])
        if last.best_round is not None and last.best_round in rounds:
            kept.add(last.best_round)
        dropped = [self.manifest(round) for round in rounds if round not in kept]
        if dropped:
            self._drop(dropped, [self.manifest(round) for round in sorted(kept)])

    def _drop(self, dropped: list[Manifest], kept: list[Manifest]) -> None:
        needed = {file for manifest in kept for file in (manifest.server, manifest.roster)}
        for manifest in dropped:
            # The manifest goes first: what is left must never name a file that is gone.
            self._remove_manifest(manifest.round)
            for file in {manifest.server, manifest.roster} - needed:
                (self.state / file).unlink(missing_ok=True)
            for name, standing in manifest.clients.items():
                in_use = {other.clients[name].version for other in kept if name in other.clients}
                if standing.version not in in_use:
                    self.clients.discard(manifest.run, name, [standing.version])

    def go_back(self, round: int) -> None:
        """Makes a kept round the last one; later manifests go."""
        self.manifest(round)
        for later in reversed([number for number in self.rounds() if number > round]):
            self._remove_manifest(later)

    def sweep(self) -> None:
        """Removes what an interrupted process left behind.

        Newer client versions stay: they are answers to tasks that will be asked again.
        """
        kept = [self.manifest(round) for round in self.rounds()]
        last = kept[-1]
        for leftover in self.state.rglob(".*"):
            leftover.unlink()
        needed = {manifest.server for manifest in kept}
        for path in (self.state / "server").iterdir():
            if f"server/{path.name}" not in needed:
                path.unlink()
        for name in last.clients:
            in_use = {manifest.clients[name].version for manifest in kept}
            stale = {v for v in self.clients.versions(last.run, name) if v <= last.round} - in_use
            self.clients.discard(last.run, name, stale)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes off this run; a crash does not leave the lock behind."""
        with (self.state / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(f"another process is working on {self.directory}") from None
            self._wait_for_old_workers()
            yield

    def _wait_for_old_workers(self, seconds: float = 10.0) -> None:
        """Workers of a killed process end by themselves, a moment after it."""
        deadline = time.monotonic() + seconds
        with (self.state / WORKERS_LOCK).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except OSError:
                    if time.monotonic() > deadline:
                        raise StoreError(
                            f"workers of an earlier process are still at work on {self.directory}"
                        ) from None
                    time.sleep(0.05)

    def _remove_manifest(self, round: int) -> None:
        self._manifest_path(round).unlink(missing_ok=True)
        self._manifests.pop(round, None)

    def _manifest_path(self, round: int) -> Path:
        return self.state / "manifests" / f"{round:05d}.json"


def _read_manifest(path: Path) -> Manifest:
    try:
        raw = json.loads(path.read_bytes())
        if isinstance(raw, dict) and raw.get("format", FORMAT) > FORMAT:
            raise StoreError(f"{path} was written by a newer pfedes (format {raw['format']})")
        return Manifest.model_validate(raw)
    except (OSError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} is damaged: {reason}") from None


def server_name(round: int) -> str:
    return f"server/{round:05d}.safetensors"


def roster_bytes(cards: Iterable[Card]) -> bytes:
    return json.dumps([asdict(card) for card in cards]).encode()


def roster_name(data: bytes) -> str:
    return f"roster-{sha256(data).hexdigest()[:16]}.json"


def _card(raw: dict[str, Any]) -> Card:
    """A card from JSON, which knows neither tuples nor numbers as keys."""
    if raw["parameters"] is not None:
        raw["parameters"] = {n: (kind, tuple(s)) for n, (kind, s) in raw["parameters"].items()}
    if raw["classes"] is not None:
        raw["classes"] = {int(label): count for label, count in raw["classes"].items()}
    return Card(**raw | {"shape": tuple(raw["shape"])})


def _read(path: Path) -> Payload:
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except WireError as error:
        raise StoreError(f"{path} is damaged: {error}") from None
