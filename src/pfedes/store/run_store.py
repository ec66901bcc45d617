"""Run state on disk. The store is the checkpoint.

A client commits {state, reply} of a round as one file before it answers. The run commits a round
by renaming its manifest into place; what no kept manifest names is not part of the run.

    state/manifests/00003.json                        the commit of round 3
    state/server/00003.safetensors                    what the server holds after round 3
    state/roster-<digest>.json                        the clients' cards
    state/noise.key                                   the secret of a server's noise, if it adds any
    state/data.safetensors                            labels, classes and statistics of the data
    state/clients/<client>/<run id>/00003.safetensors   the client after its work in round 3
"""

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pfedes.core.client import Card, cards_from
from pfedes.core.payload import Payload, State, encode, read_payload
from pfedes.errors import DamageError, StoreError, WireError
from pfedes.files import (
    appearing,
    append,
    is_temporary,
    make_private_directory,
    parse_json,
    publish,
    read,
    remove,
    remove_abandoned,
    sync_directory,
    write_atomically,
    writing,
)
from pfedes.privacy.budget import Release
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.noise import NOISE_KEY, kept_key
from pfedes.store.client_store import ClientStore, numbered
from pfedes.store.manifest import Extent, Manifest, MetricsFile, read_manifest

log = logging.getLogger(__name__)


KEPT_DATA = "data.safetensors"
ACCOUNT: MetricsFile = "privacy.jsonl"
ELSEWHERE = "on machines of their own"


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
        try:
            if not (store.state / "manifests").is_dir():
                if (directory / "summary.json").is_file():
                    raise StoreError(
                        f"{directory} is only the record of a run: its states were not kept "
                        "(pfedes paper keeps them with --keep-states)"
                    )
                raise StoreError(f"{directory} is not a run directory: it has no state/manifests")
            _refuse_links(directory)
        except OSError as error:
            raise StoreError(f"{directory} cannot be opened: {error.strerror}") from None
        return store

    @classmethod
    def create(
        cls,
        directory: Path,
        files: Mapping[str, str],
        cards: Iterable[Card],
        state: State,
        manifest: Manifest,
        kept: Payload | None = None,
    ) -> "RunStore":
        """Makes the run directory appear by one rename, with manifest 0 in it.

        `kept` is what is stored of the data.
        """
        with appearing(directory) as work:
            store = cls(work)
            for place in ("manifests", "server", "clients"):
                make_private_directory(store.state / place)
            for name, text in files.items():
                publish(work / name, text.encode())
            store.write_roster(cards)
            store.write_server(manifest.server, state)
            store.write_manifest(manifest)
            if kept is not None:
                write_atomically(store.kept_path, encode(kept))
        return cls(directory)

    def kept_data(self) -> Payload | None:
        """The stored part of the run's data; None if the run stored nothing of it."""
        return read_payload(self.kept_path) if self.kept_path.exists() else None

    @property
    def kept_path(self) -> Path:
        return self.state / KEPT_DATA

    def environment(self) -> dict[str, Any]:
        """The versions with which the run began, and the digest of its data."""
        path = self.directory / "environment.json"
        found = parse_json(path, read(path))
        needed = {"data", "federation", "torch_build"}
        if not isinstance(found, dict) or not needed <= found.keys():
            raise DamageError(f"{path} is damaged: one of {sorted(needed)} is missing")
        return found

    def check_data(self, digest: str) -> None:
        """Refuses data that is not what the run was trained on."""
        if self.environment()["data"] != digest:
            raise StoreError(f"{self.directory} was trained on other data than the data found now")

    def check_federation(self, digest: str, earlier: str) -> None:
        """Refuses a configuration that is not what the run was made for.

        `earlier` is the digest of the same configuration as earlier versions recorded it.
        """
        if self.environment()["federation"] not in (digest, earlier):
            raise StoreError(
                f"{self.directory / 'config.toml'} has a changed key that defines the run: "
                "seed, data, partition, models or the method's name. Change it back; if "
                "the data has moved, give --data-dir"
            )

    def write_environment(self, changes: Mapping[str, Any]) -> None:
        """Changes some of what is recorded of the run's origin."""
        about = {**self.environment(), **changes}
        publish(self.directory / "environment.json", json.dumps(about, indent=2).encode())

    def rounds(self) -> list[int]:
        """The rounds whose manifests are kept, oldest first."""
        return numbered(self.state / "manifests", ".json")

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
            self._manifests[number] = read_manifest(self._manifest_path(number))
        return self._manifests[number]

    def write_manifest(self, manifest: Manifest) -> None:
        write_atomically(self._manifest_path(manifest.round), manifest.to_bytes())
        self._manifests[manifest.round] = manifest

    def server_state(self, manifest: Manifest) -> State:
        path = self.state / manifest.server
        state = read_payload(path)
        if state.digest() != manifest.server_digest:
            raise DamageError(f"{path} belongs to another run or round (digest mismatch)")
        return state

    def write_server(self, name: str, state: State) -> None:
        write_atomically(self.state / name, encode(state))

    def cards(self, manifest: Manifest) -> list[Card]:
        path = self.state / manifest.roster
        data = read(path)
        if manifest.roster != roster_name(data):
            raise DamageError(f"{path} is damaged: contents do not match their checksum")
        try:
            return cards_from(data)
        except WireError as error:
            raise DamageError(f"{path} is damaged: {error}") from None

    def write_roster(self, cards: Iterable[Card]) -> str:
        data = roster_bytes(cards)
        name = roster_name(data)
        write_atomically(self.state / name, data)
        return name

    def append(self, name: MetricsFile, rows: Iterable[Mapping[str, Any]], after: Extent) -> Extent:
        """Adds rows behind what is committed; they count once a manifest names the new extent."""
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        append(self.directory / name, data, after.length)
        return Extent(length=after.length + len(data), crc32=zlib.crc32(data, after.crc32))

    def rows(self, name: MetricsFile, manifest: Manifest) -> list[dict[str, Any]]:
        """The committed rows of a metrics file."""
        path, extent = self.directory / name, manifest.metrics.get(name, Extent())
        if extent.length == 0:
            return []
        data = read(path)[: extent.length]
        if len(data) < extent.length:
            raise DamageError(
                f"{path} is shorter than the {extent.length} bytes that were committed"
            )
        if zlib.crc32(data) != extent.crc32:
            raise DamageError(f"{path} is damaged: contents do not match their checksum")
        rows = [parse_json(path, line) for line in data.splitlines()]
        if not all(isinstance(row, dict) for row in rows):
            raise DamageError(f"{path} is damaged: a row is not an object")
        return rows

    def account(self, manifest: Manifest) -> tuple[list[Release], Extent]:
        """Every release of the run and the extent of their file, those after the commit included.

        A release counts from the moment it is written, whatever became of its round.
        """
        committed = self.rows(ACCOUNT, manifest)
        path, extent = self.directory / ACCOUNT, manifest.metrics.get(ACCOUNT, Extent())
        if not path.exists():
            return [], extent
        tail = read(path)[extent.length :]
        tail = tail[: tail.rfind(b"\n") + 1]  # an unfinished line was never released
        rows = [*committed, *(parse_json(path, line) for line in tail.splitlines())]
        grown = Extent(length=extent.length + len(tail), crc32=zlib.crc32(tail, extent.crc32))
        try:
            return [Release.model_validate(row) for row in rows], grown
        except ValidationError as error:
            raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None

    def check_account(self) -> None:
        """Refuses an account of releases that is shorter than, or other than, any commit says.

        Also where an earlier round is gone back to: what was released stays released.
        """
        for round in self.rounds():
            try:
                manifest = self.manifest(round)
            except DamageError:
                continue  # going back behind it is reported elsewhere
            self.rows(ACCOUNT, manifest)

    def noise_key(self, *, released: bool) -> bytes:
        """The secret of the server's noise."""
        return kept_key(self.state / NOISE_KEY, released=released)

    def check_privacy(self, config: PrivacyConfig) -> None:
        """Refuses another promise than the run's: only epsilon may change, and only down."""
        before = PrivacyConfig(**self.environment().get("privacy", {}))
        if not config.keeps(before):
            raise StoreError(
                f"{self.directory / 'config.toml'} was changed in [privacy]: a run keeps what it "
                "promised; only epsilon may be lowered"
            )
        if config != before:
            self.write_environment({"privacy": config.model_dump(mode="json")})

    @property
    def is_elsewhere(self) -> bool:
        """Whether clients keep their states on machines of their own."""
        return self.environment().get("clients") == ELSEWHERE

    def verify(
        self, round: int, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Reads all that a round consists of; a DamageError names the first file that is not so."""
        manifest = self.manifest(round)
        if {card.name for card in self.cards(manifest)} != manifest.clients.keys():
            raise DamageError(
                f"{self.state / manifest.roster} belongs to another run: it names other clients"
            )
        self.server_state(manifest)
        for file in manifest.metrics:
            self.rows(file, manifest)
        for done, (name, standing) in enumerate(manifest.clients.items(), 1):
            if standing.version and not self.is_elsewhere:
                version = self.clients.load(manifest.run, name, standing.version)
                if Payload(version.state).digest() != standing.digest:
                    path = self.clients.path(manifest.run, name, standing.version)
                    raise DamageError(
                        f"{path} is not the accepted state: it belongs to another run, round or "
                        "client (digest mismatch)"
                    )
            progress(done, len(manifest.clients))

    def way_back(self) -> str:
        """The remedy for damage: the newest round that is intact, and how to go back to it."""
        for round in reversed(self.rounds()):
            try:
                self.verify(round)
            except StoreError:
                continue
            command = f"pfedes resume {self.directory} --from-round {round}"
            return f"round {round} is intact: '{command}' goes back to it"
        return "no kept round is intact"

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
            # The manifest is removed first: a remaining manifest must never name a missing file.
            self._remove_manifest(manifest.round)
            for file in {manifest.server, manifest.roster} - needed:
                remove(self.state / file)
            for name, standing in manifest.clients.items():
                in_use = {other.clients[name].version for other in kept if name in other.clients}
                if standing.version not in in_use:
                    self.clients.discard(manifest.run, name, [standing.version])

    def go_back(self, round: int) -> None:
        """Makes a kept round the last one; later manifests go."""
        self.manifest(round)
        for later in reversed([number for number in self.rounds() if number > round]):
            self._remove_manifest(later)

    def forget_unclaimed_answers(self) -> None:
        """Removes answers of clients after the last round, which are not needed any more."""
        last = self.manifest()
        for name in last.clients:
            newer = [v for v in self.clients.versions(last.run, name) if v > last.round]
            self.clients.discard(last.run, name, newer)

    def sweep(self) -> None:
        """Removes what an interrupted process left behind, and older rounds that are damaged.

        Newer client versions stay: they are answers to tasks that will be asked again.
        """
        last = self.manifest()
        kept = [last]
        for round in self.rounds()[:-1]:
            try:
                kept.append(self.manifest(round))
            except DamageError as error:
                log.warning("%s; cannot go back to round %d", error, round)
                self._remove_manifest(round)
        self.remove_leftovers()
        needed = {manifest.server for manifest in kept}
        with writing(self.state / "server"):
            found = list((self.state / "server").iterdir())
        for path in found:
            if f"server/{path.name}" not in needed:
                remove(path)
        for name in last.clients:
            in_use = {other.clients[name].version for other in kept if name in other.clients}
            stale = {v for v in self.clients.versions(last.run, name) if v <= last.round} - in_use
            self.clients.discard(last.run, name, stale)

    def remove_leftovers(self) -> None:
        """Removes what processes were writing when they were killed, and nothing else.

        Others may be writing a report at this moment; a user may keep hidden files here.
        """
        for leftover in [*self.state.rglob(".*"), *self.directory.glob(".*")]:
            with writing(leftover):
                is_ours = is_temporary(leftover) and leftover.is_file()
            if is_ours:
                remove_abandoned(leftover)

    def _remove_manifest(self, round: int) -> None:
        path = self._manifest_path(round)
        remove(path)
        with writing(path.parent):
            sync_directory(path.parent)  # before any file goes that it names
        self._manifests.pop(round, None)

    def _manifest_path(self, round: int) -> Path:
        return self.state / "manifests" / f"{round:05d}.json"


def server_name(round: int) -> str:
    """Name of the file of the server's state after a round, below `state/`."""
    return f"server/{round:05d}.safetensors"


def roster_bytes(cards: Iterable[Card]) -> bytes:
    """The clients' cards as JSON."""
    return json.dumps([asdict(card) for card in cards]).encode()


def roster_name(data: bytes) -> str:
    """Name of the file with these cards, by their digest."""
    return f"roster-{sha256(data).hexdigest()[:16]}.json"


def _refuse_links(directory: Path) -> None:
    """A link in a run directory would make us read or write somewhere else."""
    for place, folders, files in os.walk(directory):
        for name in [*folders, *files]:
            path = Path(place, name)
            # Listed files may be gone by now: a running run writes and removes files.
            ordinary = path.is_file() or path.is_dir() or not path.exists()
            if path.is_symlink() or not ordinary:
                raise StoreError(f"{path} is not a regular file: a run directory holds no links")
