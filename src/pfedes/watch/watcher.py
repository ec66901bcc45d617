"""Reads the watched directories again and again, and never writes to them."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Event

from pfedes.errors import PfedesError
from pfedes.formatting import listed
from pfedes.results.places import runs_below
from pfedes.results.run import Run
from pfedes.store.run_store import RunStore
from pfedes.watch.bounded import MOST_CLIENTS, MOST_RUNS, text
from pfedes.watch.coordinator import FederationView, awaited_in, federation_view, is_federation
from pfedes.watch.view import PageView, not_begun, unreadable, view_of

log = logging.getLogger(__name__)

LOOKING = 5.0  # seconds between searches for new runs
SHARE = 20  # a search takes at most this fraction of the time: directories may be large
AGAIN = 10.0  # seconds until what could not be read is tried again

Signature = tuple[int, ...]


@dataclass(frozen=True)
class WatchedEntry:
    """One watched run, as it was last read."""

    id: str
    name: str
    directory: Path
    federation: Path | None  # its directory, if a coordinator's
    view: PageView
    people: FederationView | None = None
    signature: Signature = ()
    committed: float = 0.0  # when, in seconds since 1970
    read: float = 0.0
    clients: tuple[str, tuple[str, ...], int] = ("", (), 0)  # run id, names, last round

    def state(self, now: float) -> str:
        """In one word."""
        if self.view.problem:
            return "unreadable"
        if not self.view.begun:
            return "not begun"
        if self.view.finished:
            return "finished"
        return "at work" if now - self.committed < self.view.silence else "silent"


class Watcher:
    """Holds all entries. Each is replaced as a whole, so that readers need no lock."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = list(directories)
        self.entries: dict[str, WatchedEntry] = {}
        self.left_out = 0
        self._look_at = 0.0
        self._looked = Event()

    def read_runs(self) -> None:
        """Finds runs and reads those that have changed. Meant to be called every second."""
        if time.monotonic() >= self._look_at:
            began = time.monotonic()
            self._look()
            took = time.monotonic() - began
            self._look_at = began + max(LOOKING, SHARE * took)
            self._looked.set()
        for entry in list(self.entries.values()):
            self._read(entry)

    def ask_federations(self) -> None:
        """Asks coordinators' servers who is connected: seconds for each that does not answer."""
        self._looked.wait(LOOKING)  # at the start it is not known yet which server to ask
        for entry in list(self.entries.values()):
            if entry.federation is not None:
                people = _people(entry.federation)
                if entry.id in self.entries:
                    self.entries[entry.id] = replace(self.entries[entry.id], people=people)

    def _look(self) -> None:
        found: dict[str, WatchedEntry] = {}
        for top in self.directories:
            runs = runs_below(top)
            if not runs and is_federation(top):
                runs = [top / "run"]  # its first job has not begun
            for place in runs:
                entry = _entry(place, top)
                found.setdefault(entry.id, self.entries.get(entry.id, entry))
        self.left_out = max(0, len(found) - MOST_RUNS)
        kept = dict(list(found.items())[:MOST_RUNS])
        for id in self.entries.keys() - kept.keys():
            del self.entries[id]
        self.entries |= {id: entry for id, entry in kept.items() if id not in self.entries}

    def _read(self, entry: WatchedEntry) -> None:
        now = time.time()
        signature = _signature(entry.directory)
        again = bool(entry.view.problem) and now - entry.read > AGAIN
        if signature == entry.signature and not again:
            return
        try:
            # Not `open_run`: of a damaged run it would read all states to find the way back.
            run = Run(RunStore.open(entry.directory))
            view = view_of(run)
            clients = (run.manifest.run, tuple(run.manifest.clients), run.manifest.round)
        except PfedesError as error:
            view, clients = unreadable(error), entry.clients
        except Exception as error:
            # The files may come from anybody: one run must not take the page from the others.
            log.debug("%s cannot be shown", entry.directory, exc_info=True)
            view, clients = unreadable(f"cannot be read: {error}"), entry.clients
        self.entries[entry.id] = replace(
            self.entries[entry.id],
            view=view,
            clients=clients,
            signature=signature,
            committed=signature[0] / 1e9 if signature else 0.0,
            read=now,
        )

    def under_way(self, id: str) -> str:
        """A line on the round that is not committed yet."""
        entry = self.entries.get(id)
        if entry is None or entry.view.problem or entry.state(time.time()) != "at work":
            return ""
        run, names, done = entry.clients
        if entry.federation is not None:
            awaited = [text(name) for name in awaited_in(entry.federation)]
            return f"Round {done + 1}: waiting for {listed(awaited, 12)}" if awaited else ""
        store = RunStore(entry.directory).clients
        try:
            answered = [
                name for name in names[:MOST_CLIENTS] if done + 1 in store.versions(run, name)
            ]
        except (PfedesError, OSError):  # the run continues, and may remove what was listed
            return ""
        if not answered:
            return f"Round {done + 1}: clients at work"
        return f"Round {done + 1}: answers from {listed(answered, 12)}"


def _people(directory: Path) -> FederationView:
    try:
        return federation_view(directory)
    except Exception as error:  # as above: one federation must not take the page from the others
        log.debug("%s cannot be shown", directory, exc_info=True)
        return FederationView(warnings=(text(f"cannot be read: {error}"),))


def _entry(place: Path, top: Path) -> WatchedEntry:
    parent = place.parent
    federation = parent if place.name == "run" and is_federation(parent) else None
    shown = federation or place
    name = shown.relative_to(top) if shown != top and shown.is_relative_to(top) else shown
    id = sha256(str(place.absolute()).encode(errors="replace")).hexdigest()[:12]
    begun = federation is None or place.exists()
    view = unreadable("not read yet") if begun else not_begun()
    return WatchedEntry(id, text(name), place, federation, view)


def _signature(directory: Path) -> Signature:
    """Changes whenever a round is committed or taken back, or the configuration is changed."""
    try:
        watched = (directory / "state" / "manifests", directory / "config.toml")
        return tuple(stat.st_mtime_ns for path in watched for stat in [path.stat()])
    except OSError:
        return ()
