"""Workers that are started before they are needed."""

import os
import sys
from pathlib import Path

import pytest

from pfedes.fleet import early
from pfedes.fleet.early import Begun, begin_early, dismiss, likely_workers, take
from pfedes.fleet.process import same_imports


class Fake:
    """A process that is alive until it is told otherwise."""

    stdin = stdout = None

    def __init__(self) -> None:
        self.alive, self.killed = True, False

    def poll(self) -> int | None:
        return None if self.alive else 1

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Fake]:
    made: list[Fake] = []

    def begin(clients: str = "") -> Begun:
        made.append(Fake())
        imports = same_imports()["PYTHONPATH"]
        return Begun(made[-1], -1, imports)  # type: ignore[arg-type]  # a fake process

    monkeypatch.setattr(early, "begin", begin)
    monkeypatch.setattr(os, "close", lambda _: None)
    monkeypatch.setattr(early, "_waiting", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return made


def taken() -> object:
    """The process that is taken: one of those above, or a new one."""
    return take("here").process


def test_one_that_waits_is_taken_and_the_rest_is_dismissed(started: list[Fake]) -> None:
    begin_early(3)
    assert taken() in started
    assert len(started) == 3
    dismiss()
    assert sorted(fake.killed for fake in started) == [False, True, True]
    take("here")
    assert len(started) == 4


def test_a_dead_one_is_not_taken(started: list[Fake]) -> None:
    begin_early(1)
    started[0].alive = False
    assert taken() is not started[0]
    assert started[0].killed


def test_one_that_would_import_other_modules_is_not_taken(
    started: list[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_early(1)
    monkeypatch.syspath_prepend("/somewhere/else")
    assert taken() is not started[0]


def test_nothing_is_gained_where_torch_is_there_already(
    started: list[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    begin_early(2)
    assert not started


def test_no_more_early_workers_than_are_of_use(started: list[Fake]) -> None:
    begin_early(1000)
    assert len(started) == early.MOST


@pytest.mark.parametrize(
    ("text", "settings", "options", "expected"),
    [
        ("", [], {}, 4),
        ("", [], {"workers": 2}, 2),
        ("", [], {"workers": 6}, 6),
        ("", [], {"clients": 3}, 3),
        ("", [], {"cluster": "tls://there:8786"}, 0),
        ("", ["runtime.fleet=serial"], {}, 0),
        ("", ['runtime.fleet="serial"'], {}, 0),
        ("", ["runtime.workers=1"], {}, 1),
        ("[runtime]\nworkers = 2\n", [], {}, 2),
        ("[runtime]\nworkers = 'auto'\n", [], {}, 4),
        ("[runtime]\nworkers = 2\n", ["runtime.workers=3"], {}, 3),
        ("[runtime]\nfleet = 'cluster'\n", [], {}, 0),
        ("[partition]\nclients = 2\n", [], {}, 2),
        ("runtime = 3\n", [], {}, 4),
        ("no TOML", [], {}, 4),
        ("", ["nonsense"], {}, 4),
        ("", ["runtime.workers=-1"], {}, 0),
    ],
)
def test_the_number_of_early_workers(
    text: str,
    settings: list[str],
    options: dict[str, object],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert likely_workers(file, settings, **options) == expected
    assert likely_workers(tmp_path / "missing.toml", ()) == 4
