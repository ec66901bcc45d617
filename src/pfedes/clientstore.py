"""Client states on disk: one new file for each round that a client worked in.

<client>/<run id>/00003.safetensors     the client after its work in round 3
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pfedes.errors import DamageError, WireError
from pfedes.files import read, remove, sync_directory, write_atomically, writing
from pfedes.manifest import check_name
from pfedes.payload import Payload, Value, decode, encode, under, within


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
        return numbered(self._home(run, client), ".safetensors")

    def load(self, run: str, client: str, version: int) -> Version:
        """The version, whole and of this very client, or a DamageError."""
        path = self.path(run, client, version)
        payload = read_payload(path)
        task = within("task/", payload.meta)
        for key, value in {"run": run, "client": client, "round": version}.items():
            if task.get(key) != value:
                raise DamageError(f"{path} is foreign: its {key} is {task.get(key)!r:.40}")
        return Version(
            state=within("state/", payload.tensors),
            task=task,
            reply=Payload(within("reply/", payload.tensors), within("reply/", payload.meta)),
        )

    def commit(self, version: Version) -> None:
        """Puts the version where the task it answers says."""
        task = version.task
        tensors = under("state/", version.state) | under("reply/", version.reply.tensors)
        meta = under("task/", task) | under("reply/", version.reply.meta)
        path = self.path(str(task["run"]), str(task["client"]), int(str(task["round"])))
        if not path.parent.is_dir():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                for place in (path.parent.parent, self.root):
                    sync_directory(place)
        write_atomically(path, encode(Payload(tensors, meta)))

    def discard(self, run: str, client: str, versions: Iterable[int]) -> None:
        for version in versions:
            remove(self.path(run, client, version))

    def path(self, run: str, client: str, version: int) -> Path:
        return self._home(run, client) / f"{version:05d}.safetensors"

    def _home(self, run: str, client: str) -> Path:
        return self.root / check_name(client) / check_name(run)


def numbered(directory: Path, suffix: str) -> list[int]:
    """The numbers that files such as 00003.json have for a name, ascending."""
    names = [path.stem for path in directory.glob(f"*{suffix}")]
    return sorted(int(n) for n in names if n.isascii() and n.isdecimal() and n == f"{int(n):05d}")


def read_payload(path: Path) -> Payload:
    """The payload in a file, whole, or a DamageError that names the file."""
    try:
        return decode(read(path))
    except WireError as error:
        raise DamageError(f"{path} is damaged: {error}") from None
