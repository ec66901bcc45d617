"""Damaged, missing and foreign files: named, never loaded in part, and a way back."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pfedes import Federation, StoreError, open_run
from pfedes.cli import execute
from pfedes.errors import DiskError
from running import contents, flipped, result, small, truncated

CONFIG = small(train__rounds=3, runtime__keep_rounds=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds, of which the last two are kept."""
    place = tmp_path_factory.mktemp("damage") / "run"
    Federation(CONFIG, out=place).run()
    return place


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def of_last_round(run: Path) -> dict[str, Path]:
    state = run / "state"
    return {
        "manifest": state / "manifests" / "00003.json",
        "server": state / "server" / "00003.safetensors",
        "client": next((state / "clients" / "client-0002").glob("*/00003.safetensors")),
    }


def foreign(path: Path) -> None:
    """A whole and valid file of another round, or of another client."""
    if "clients" in path.parts:
        other = next(path.parents[2].glob("client-0001/*/00003.safetensors"))
    else:
        other = next(p for p in sorted(path.parent.iterdir()) if p != path)
    shutil.copy(other, path)


@pytest.mark.parametrize("what", ["manifest", "server", "client"])
@pytest.mark.parametrize("damage", [truncated, flipped, foreign, Path.unlink])
def test_damage_is_named_with_the_way_back(
    what: str, damage: Callable[[Path], None], run: Path, finished: Path
) -> None:
    path = of_last_round(run)[what]
    damage(path)
    before = contents(run)
    if what == "manifest" and not path.exists():
        # Then the round was never committed, and is done again.
        again = Federation.resume(run).run()
    else:
        with pytest.raises(StoreError) as error:
            Federation.resume(run, rounds=4).run()
        said = str(error.value)
        assert str(path) in said
        way = re.search(r"round 2 is intact: 'pfedes (resume \S+ --from-round 2)' goes back", said)
        assert way is not None, said
        assert contents(run) == before
        assert execute([*way[1].split(), "--quiet"]) == 0
        again = open_run(run)
    assert result(again) == result(open_run(finished))


def test_rows_are_summed_too(run: Path, finished: Path) -> None:
    path = run / "rounds.jsonl"
    path.write_text(path.read_text().replace('"round": 3', '"round": 4'))
    readings: list[Callable[[], object]] = [
        lambda: open_run(run),
        lambda: Federation.resume(run, rounds=4).run(),
    ]
    for reading in readings:
        with pytest.raises(StoreError, match=r"rounds.jsonl is damaged: .*; round 2 is intact"):
            reading()
    assert result(Federation.resume(run, from_round=2).run()) == result(open_run(finished))


def test_no_round_is_intact(run: Path) -> None:
    for path in (run / "state" / "server").iterdir():
        truncated(path)
    with pytest.raises(StoreError, match="no kept round is intact"):
        Federation.resume(run, rounds=4).run()


def test_a_damaged_older_round_does_not_stop_the_run(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    truncated(run / "state" / "manifests" / "00002.json")
    again = Federation.resume(run, rounds=4).run()
    assert again.finished
    assert "cannot go back to round 2" in caplog.text


@pytest.mark.parametrize("place", ["state/clients/client-0000", "rounds.jsonl", "state", "run.log"])
def test_links_are_not_followed(place: str, run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / place).rename(elsewhere)
    (run / place).symlink_to(elsewhere)
    with pytest.raises(StoreError, match="a run directory holds no links"):
        Federation.resume(run, rounds=4)
    with pytest.raises(StoreError, match="a run directory holds no links"):
        open_run(run)


def test_a_run_directory_behind_a_link_is_fine(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert Federation.resume(tmp_path / "link", rounds=4).run().finished


SHORT = small(train__rounds=2, models__pool=["cnn5"])


class DiskFull:
    """fsync fails from the n-th call on, until there is space again."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.full = True

    def __call__(self, handle: int) -> None:
        self.left -= 1
        if self.full and self.left < 0:
            raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return result(Federation(SHORT, out=tmp_path_factory.mktemp("straight") / "run").run())


@pytest.mark.parametrize("after", [13, 17, 23, 29, 31, 33, 35, 37])
def test_a_full_disk_stops_the_run_and_nothing_is_lost(
    after: int,
    straight: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = DiskFull(after)
    monkeypatch.setattr("os.fsync", disk)
    with pytest.raises(DiskError, match=r"No space left on device; committed rounds are safe") as e:
        Federation(SHORT, out=tmp_path / "run").run()
    assert f"'pfedes resume {tmp_path / 'run'}'" in str(e.value)
    disk.full = False
    assert result(Federation.resume(tmp_path / "run").run()) == straight


@pytest.mark.parametrize("after", [0, 4, 9])
def test_a_disk_that_is_full_from_the_start(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", DiskFull(after))
    with pytest.raises(DiskError, match="No space left on device"):
        Federation(SHORT, out=tmp_path / "runs" / "run").run()
    assert list((tmp_path / "runs").iterdir()) == []


def edited(run: Path, old: str, new: str) -> None:
    path = run / "config.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_answers_of_other_settings_are_asked_for_again(run: Path) -> None:
    before = [row["loss"] for row in open_run(run).rounds]
    edited(run, "lr = 0.01\nmomentum", "lr = 0.2\nmomentum")
    again = [row["loss"] for row in Federation.resume(run, from_round=2).run().rounds]
    assert again[:2] == before[:2]
    assert again[2] != before[2]


@pytest.mark.parametrize(
    ("old", "new"),
    [("seed = 0", "seed = 1"), ("clients = 4", "clients = 5"), ('"cnn4"]', '"cnn3"]')],
)
def test_a_run_keeps_its_clients(old: str, new: str, run: Path) -> None:
    edited(run, old, new)
    with pytest.raises(StoreError, match="has a changed key that defines the run"):
        Federation.resume(run, rounds=4).run()


@pytest.mark.parametrize("place", ["state/server/x", "state/manifests/00009.json"])
def test_a_directory_where_a_file_belongs_is_named(place: str, run: Path) -> None:
    (run / place).mkdir()
    with pytest.raises(DiskError, match=rf"cannot write .*{place}: Is a directory"):
        Federation.resume(run, from_round=2).run()
    (run / place).rmdir()
    assert Federation.resume(run, from_round=2).run().finished


@pytest.mark.parametrize("place", ["state/manifests/4.json", ".hidden-x"])
def test_a_directory_that_is_none_of_ours_does_no_harm(place: str, run: Path) -> None:
    (run / place).mkdir()
    assert Federation.resume(run, from_round=2).run().manifest.round == 3


def test_stray_files_are_no_rounds(run: Path, finished: Path) -> None:
    shutil.copy(run / "state/manifests/00003.json", run / "state/manifests/4.json")
    (run / ".summary.json-0123456789abcdef").write_text("half")
    again = Federation.resume(run, rounds=3).run()
    assert not (run / ".summary.json-0123456789abcdef").exists()
    (run / "state/manifests/4.json").unlink()
    assert result(again) == result(open_run(finished))


def test_a_clients_model_with_a_missing_file(run: Path) -> None:
    of_last_round(run)["client"].unlink()
    with pytest.raises(StoreError, match="missing base"):
        open_run(run).model("client-0002")


def test_going_back_to_the_end_leaves_nothing_behind(run: Path) -> None:
    again = Federation.resume(run, rounds=2, from_round=2).run()
    assert again.finished
    assert not list((run / "state").rglob("00003.*"))


def test_names_that_no_file_system_takes(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="File name too long"):
        Federation(SHORT, out=tmp_path / ("x" * 300)).run()
    with pytest.raises(StoreError, match="File name too long"):
        Federation.resume(tmp_path / ("x" * 300))
