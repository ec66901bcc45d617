"""The code that a command may import: that of runs which this user began on this machine.

A run directory can come from anybody, and its config.toml can name functions, methods and the
address of a cluster. Commands that open one use these names only if a run of this user recorded
them here, or if the user says so with `--trust-code`; and never what lies in a run directory.
The record is outside of run directories: below `$PFEDES_STATE`, or in the user's state directory.
"""

import json
import logging
import os
from hashlib import sha256
from pathlib import Path

from pfedes.config import Config
from pfedes.core.names import check_name
from pfedes.errors import DiskError, StoreError
from pfedes.files import make_private_directory, write_atomically
from pfedes.formatting import listed
from pfedes.imports import is_own, resolved
from pfedes.models import MODELS

log = logging.getLogger(__name__)

MOST_NAMED = 8  # in one line

Names = dict[str, str]
"""Names of code by the keys of the configuration that hold them."""


def code_of(config: Config, *, loads_data: bool = True) -> Names:
    """Every function, class and module outside pfedes that a configuration names.

    Functions that load data are left out where none is loaded.
    """
    found = {}
    for person in config.participants:
        if person.model not in MODELS:
            found[f"participants.{person.name}.model"] = resolved(person.model)
        if loads_data and is_own(person.data):
            found[f"participants.{person.name}.data"] = resolved(person.data)
    for key, value in config.method.model_dump(exclude={"start_from"}).items():
        if isinstance(value, str) and is_own(value):
            found[f"method.{key}"] = value
    return found


def contacts_of(config: Config) -> Names:
    """The addresses to which a resumed run would connect: a peer there could run code."""
    runtime = config.runtime
    return {"runtime.cluster": runtime.cluster} if runtime.fleet == "cluster" else {}


def remember(run: str, config: Config) -> None:
    """Records what a run of this user uses, by the run's id."""
    if not (names := code_of(config) | contacts_of(config)):
        return
    try:
        place = _place(run)
        make_private_directory(place.parent)
        write_atomically(place, json.dumps({**_recorded(run), **names}, indent=2).encode())
    except (DiskError, RuntimeError) as error:  # a user without a home
        log.warning("%s: later commands on this run will ask for --trust-code", error)


def check_code(run: str, directory: Path, names: Names, *, trust_code: bool) -> None:
    """Refuses names that this user has not used in that run, and all that lies in its directory."""
    for key, name in names.items():
        if home := _run_directory_of(name, directory):
            raise StoreError(
                f"{key} = {name!r} lies inside {home}, and nothing is imported from a run "
                f"directory: move it elsewhere, and name its new place in "
                f"{directory / 'config.toml'}"
            )
    if trust_code:
        return
    known = _recorded(run)
    unknown = [f"{key} = {name!r}" for key, name in names.items() if known.get(key) != name]
    if unknown:
        raise StoreError(
            f"{directory / 'config.toml'} names code that no run of yours has used on this "
            f"machine: {listed(unknown, MOST_NAMED)}; read it, and if you trust it, repeat the "
            "command with --trust-code"
        )


def key_of_state(directory: Path) -> str:
    """In the place of a run's id, what a participant's own directory is known by."""
    return f"state-{sha256(os.fsencode(directory.resolve())).hexdigest()[:16]}"


def _run_directory_of(name: str, directory: Path) -> Path | None:
    """The run directory, or a participant's, that a file lies in."""
    module, _, _ = name.rpartition(":")
    if not module.endswith(".py"):
        return None
    for place in Path(module).parents:
        is_run = (place / "state" / "manifests").is_dir() or (place / "seat.json").is_file()
        if is_run or place == directory.resolve():
            return place
    return None


def _recorded(run: str) -> Names:
    """The recorded names, unless other users could have written them."""
    try:
        place = _place(run)
        for path in (place.parent, place):
            found = path.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                log.warning("%s is ignored: other users can write to it", path)
                return {}
        tree = json.loads(place.read_bytes())
    except (OSError, RuntimeError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _place(run: str) -> Path:
    chosen = os.environ.get("PFEDES_STATE")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    home = Path(chosen) if chosen else Path(base) / "pfedes"
    return home / "code" / f"{check_name(run)}.json"
