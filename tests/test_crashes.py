"""A crash before any step on the disk costs nothing: each is tried, in one process."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pfedes import Config, Federation, Run, open_run
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


def left_by_crashes(config: Config, place: Path) -> tuple[Run, list[Path]]:
    """A run, and what was there before each of its steps on the disk."""
    run, crashes = place / "straight" / "run", place / "crashes"
    left: dict[str, Path] = {}

    def look(step: str, args: tuple[Any, ...]) -> None:
        if (found := str(contents(run.parent))) not in left:
            left[found] = shutil.copytree(run.parent, crashes / str(len(left)))

    run.parent.mkdir()
    with before_every_step(look):
        straight = Federation(config, out=run).run()
    # Else nothing was begun, and hidden files beside its place are in nobody's way.
    return straight, [copy / "run" for copy in left.values() if (copy / "run").exists()]


def test_a_crash_before_any_step_on_the_disk_costs_nothing(tmp_path: Path) -> None:
    """A copy of the directory is what a process leaves that is killed at this moment.

    Dozens of small runs that continue take the time.
    """
    straight, left = left_by_crashes(small(**SETTINGS), tmp_path)
    assert len(left) > 20
    rounds = set()
    for crashed in left:
        rounds.add(open_run(crashed).manifest.round)
        assert result(Federation.resume(crashed).run()) == result(straight), crashed
    assert rounds == {0, 1, 2}


def test_a_crash_with_noise_gives_the_same_bits_and_charges_nobody_twice(tmp_path: Path) -> None:
    """A score of small runs that continue take the time."""
    noise = {"privacy__mode": "central", "privacy__noise": 1.0, "train__rounds": 1}
    straight, left = left_by_crashes(small(**{**SETTINGS, **noise}), tmp_path)
    assert len(left) > 12
    for crashed in left:
        resumed = Federation.resume(crashed).run()
        assert result(resumed) == result(straight), crashed
        assert resumed.summary["privacy"]["releases"] == [1, 1]


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
