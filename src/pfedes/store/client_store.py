"""Client states on disk: one new file for each round that a client worked in.

<client>/<run id>/00003.safetensors     the client after its work in round 3
<client>/<run id>/.00003-<attempt>      an attempt by a machine that may not commit
<client>/<run id>/preprocess.json       how rows of its table become inputs of its model
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pfedes.core.measures import Measures
from pfedes.core.names import check_name
from pfedes.core.payload import Payload, Value, encode, parse_payload, under, whole, within
from pfedes.core.scores import Scores
from pfedes.data.preprocess import Preprocess
from pfedes.errors import DamageError, WireError
from pfedes.files import (
    Buffer,
    make_private_directory,
    read,
    remove,
    sync_directory,
    write_atomically,
    writing,
)

PREPROCESS = "preprocess.json"
MEASURES = "measures"


@dataclass(frozen=True)
class Version:
    """A client after a round: its state, the task it was given, and what it answered.

    `measures` are what it knows besides of its scores, and need not leave it.
    """

    state: dict[str, Tensor]
    task: dict[str, Value]
    reply: Payload
    measures: Measures | None = None

    @property
    def scores(self) -> Scores:
        return Scores.from_counts(self.reply.meta, self.measures)


class ClientStore:
    """All versions of all clients below one directory. A client that never trained has none."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def versions(self, run: str, client: str) -> list[int]:
        return numbered(self._home(run, client), ".safetensors")

    def load(self, run: str, client: str, version: int) -> Version:
        """The version, whole and of this very client, or a DamageError."""
        data = self.contents(run, client, version)
        return _parse_version(data, run, client, version, str(self.path(run, client, version)))

    def contents(self, run: str, client: str, version: int) -> bytes:
        """The bytes of a version, unchecked."""
        return read(self.path(run, client, version))

    def commit(self, version: Version) -> None:
        """Puts the version where the task it answers says."""
        task = version.task
        tensors = under("state/", version.state) | under("reply/", version.reply.tensors)
        meta = under("task/", task) | under("reply/", version.reply.meta)
        if version.measures is not None:
            meta[MEASURES] = version.measures.to_text()
        data = encode(Payload(tensors, meta))
        self.put(str(task["run"]), str(task["client"]), whole(task["round"]), data)

    def put(self, run: str, client: str, version: int, data: Buffer) -> None:
        """Makes bytes a version, at once and for good."""
        path = self.path(run, client, version)
        self._make_home(path)
        write_atomically(path, data)

    def put_attempt(self, run: str, client: str, version: int, attempt: str, data: bytes) -> None:
        """Writes an attempt, which becomes a version only when the driver adopts it."""
        path = self._attempt(run, client, version, attempt)
        self._make_home(path)
        write_atomically(path, data)

    def adopt(self, run: str, client: str, version: int, attempt: str) -> None:
        """Makes an attempt the version. Others stay what they are: files that nobody reads."""
        path = self.path(run, client, version)
        with writing(path):
            os.replace(self._attempt(run, client, version, attempt), path)
            sync_directory(path.parent)

    def discard(self, run: str, client: str, versions: Iterable[int]) -> None:
        for version in versions:
            remove(self.path(run, client, version))

    def keep_preprocess(self, run: str, client: str, preprocess: Preprocess) -> None:
        """Stores what the client's model needs to read a table. It is part of the model."""
        path = self._home(run, client) / PREPROCESS
        self._make_home(path)
        write_atomically(path, preprocess.to_json().encode())

    def preprocess(self, run: str, client: str) -> Preprocess | None:
        """What `keep_preprocess` stored, or a DamageError; None if it stored nothing."""
        path = self._home(run, client) / PREPROCESS
        if not path.exists():
            return None
        try:
            return Preprocess.from_json(read(path).decode())
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamageError(f"{path} is damaged: {error}") from None

    def path(self, run: str, client: str, version: int) -> Path:
        return self._home(run, client) / f"{version:05d}.safetensors"

    def _attempt(self, run: str, client: str, version: int, attempt: str) -> Path:
        # Hidden: if it is never adopted, it goes with what killed processes leave behind.
        return self._home(run, client) / f".{version:05d}-{check_name(attempt)}"

    def _make_home(self, path: Path) -> None:
        if not path.parent.is_dir():
            make_private_directory(path.parent)
            with writing(path):
                for place in (path.parent.parent, self.root):
                    sync_directory(place)

    def _home(self, run: str, client: str) -> Path:
        return self.root / check_name(client) / check_name(run)


def _parse_version(data: bytes, run: str, client: str, version: int, origin: str) -> Version:
    """The version that bytes are, if it is this very one; `origin` is where they come from."""
    payload = parse_payload(data, origin)
    task = within("task/", payload.meta)
    for key, value in {"run": run, "client": client, "round": version}.items():
        if task.get(key) != value:
            raise DamageError(
                f"{origin} belongs to another run, round or client: its {key} is "
                f"{task.get(key)!r:.40}"
            )
    known = payload.meta.get(MEASURES)  # not in versions of earlier pfedes
    try:
        measures = Measures.from_text(str(known)) if known is not None else None
    except WireError as error:
        raise DamageError(f"{origin} is damaged: {error}") from None
    return Version(
        state=within("state/", payload.tensors),
        task=task,
        reply=Payload(within("reply/", payload.tensors), within("reply/", payload.meta)),
        measures=measures,
    )


def numbered(directory: Path, suffix: str) -> list[int]:
    """The numbers that files such as 00003.json have for a name, ascending."""
    names = [path.stem for path in directory.glob(f"*{suffix}")]
    return sorted(int(n) for n in names if n.isascii() and n.isdecimal() and n == f"{int(n):05d}")
