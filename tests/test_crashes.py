"""A crash before any step on the disk costs nothing: each is tried, in one process."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pfedes import Federation, open_run
from running import contents, result, small

SETTINGS: dict[str, Any] = {
    "data__limit": 60,
    "partition__clients": 2,
    "partition__classes_per_client": 5,
    "models__pool": ["cnn5"],
    "train__rounds": 2,
    "runtime__keep_rounds": 1,  # so that files are removed, too
}

STEPS = ("fsync", "replace", "rename", "unlink")


@contextmanager
def before_every_step(look: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Calls `look` before whatever changes what a crash would leave."""
    with pytest.MonkeyPatch.context() as patch:
        for step in STEPS:
            real = getattr(os, step)

            def looked(*args: Any, step: str = step, real: Any = real, **options: Any) -> Any:
                look(step, args)
                return real(*args, **options)

            patch.setattr(os, step, looked)
        yield


def test_a_crash_before_any_step_on_the_disk_costs_nothing(tmp_path: Path) -> None:
    """A copy of the directory is what a process leaves that is killed at this moment.

    Dozens of small runs that continue take the time.
    """
    run, crashes = tmp_path / "straight" / "run", tmp_path / "crashes"
    left: dict[str, Path] = {}

    def look(step: str, args: tuple[Any, ...]) -> None:
        if (found := str(contents(run.parent))) not in left:
            left[found] = shutil.copytree(run.parent, crashes / str(len(left)))

    run.parent.mkdir()
    with before_every_step(look):
        straight = result(Federation(small(**SETTINGS), out=run).run())
    assert len(left) > 30
    rounds = set()
    for crashed in left.values():
        if not (crashed / "run").exists():
            continue  # nothing was begun, and hidden files beside its place are in nobody's way
        rounds.add(open_run(crashed / "run").manifest.round)
        assert result(Federation.resume(crashed / "run").run()) == straight, crashed.name
    assert rounds == {0, 1, 2}


def test_what_is_renamed_is_on_the_disk_before_and_its_name_right_after(tmp_path: Path) -> None:
    """A power cut loses what was not flushed: a name must never come before its contents."""
    synced: set[int] = set()
    owed: list[Path] = []  # directories with a name that is not on the disk yet
    renamed = []

    def look(step: str, args: tuple[Any, ...]) -> None:
        if step == "fsync":
            found = os.fstat(args[0]).st_ino
            synced.add(found)
            owed[:] = [place for place in owed if place.stat().st_ino != found]
        elif step in ("replace", "rename"):
            assert not owed
            work, place = map(Path, args)
            if work.is_file():
                assert work.stat().st_ino in synced, place
            owed.append(place.parent)
            renamed.append(place.name)

    with before_every_step(look):
        run = Federation(small(**SETTINGS), out=tmp_path / "run").run()
    assert not owed
    assert {"run", "00002.json", "00002.safetensors"} <= set(renamed)
    assert run.manifest.round == 2
