"""What is on disk is whole, checked, and no more than is needed."""

import fcntl
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from pfedes import Payload, StoreError
from pfedes.errors import DiskError
from pfedes.files import append, publish, remove, temporary, write_atomically
from pfedes.store.client_store import ClientStore
from pfedes.store.lock import locked
from pfedes.store.manifest import Extent
from pfedes.store.run_store import RunStore, server_name
from stores import CARDS, after, commit, create, manifest


def test_a_version_comes_back_as_it_was(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    assert store.versions("r", "a") == []
    store.commit(after("a", 3))
    store.commit(after("a", 11))
    (tmp_path / "a" / "r" / "notes.safetensors").write_text("not ours")
    assert store.versions("r", "a") == [3, 11]
    assert store.versions("other-run", "a") == []
    found = store.load("r", "a", 3)
    assert found.state["w"].tolist() == [3.0] * 3
    assert found.task == {"run": "r", "client": "a", "round": 3, "base": 0}
    assert found.reply.tensors["u"].tolist() == [3.0]
    assert found.reply.meta == {"loss": 3.0}
    store.discard("r", "a", [3, 99])
    assert store.versions("r", "a") == [11]


def test_damage_is_named(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    store.commit(after("a", 1))
    path = tmp_path / "a" / "r" / "00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"00001.safetensors is damaged: .* checksum"):
        store.load("r", "a", 1)
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        store.load("r", "a", 1)


def test_a_run_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    store = create(tmp_path / "deep" / "run")
    assert store.manifest().round == 0
    assert store.cards(store.manifest()) == CARDS
    assert (tmp_path / "deep" / "run" / "config.toml").read_text() == "seed = 1"
    with pytest.raises(StoreError, match=r"cannot write .*deep/run: Directory not empty"):
        create(tmp_path / "deep" / "run")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*file/run: Not a directory|File exists"):
        create(tmp_path / "file" / "run")


def test_only_what_kept_manifests_name_is_kept(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    commit(store, 1, {"a": 1, "b": 0}, best=1)
    commit(store, 2, {"a": 2, "b": 2}, best=1)
    commit(store, 3, {"a": 3, "b": 2}, best=1)
    commit(store, 4, {"a": 4, "b": 4}, best=1)
    store.tidy(keep_rounds=2)
    assert store.rounds() == [1, 3, 4]
    assert store.clients.versions("r", "a") == [1, 3, 4]
    assert store.clients.versions("r", "b") == [2, 4]
    assert {path.stem for path in (store.state / "server").iterdir()} == {"00001", "00003", "00004"}
    commit(store, 5, {"a": 5, "b": 4}, best=5)
    store.tidy(keep_rounds=2)
    assert store.rounds() == [4, 5]
    assert store.clients.versions("r", "a") == [4, 5]
    assert store.clients.versions("r", "b") == [4]


def test_sweeping_removes_leftovers_but_not_unclaimed_answers(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    commit(store, 1, {"a": 1, "b": 0})
    store.clients.commit(after("b", 1))  # turned away in round 1
    store.clients.commit(after("b", 2))  # answered in round 2, not yet committed
    store.write_server(server_name(2), Payload())
    temporary(store.state / "manifests" / "00002.json").write_text("half")
    RunStore.open(tmp_path / "run").sweep()
    assert store.clients.versions("r", "b") == [2]
    assert store.clients.versions("r", "a") == [1]
    assert not list(store.state.rglob(".*"))
    assert not (store.state / server_name(2)).exists()


def test_only_temporary_files_that_nobody_writes_are_leftovers(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    kept = [store.directory / ".gitignore", store.state / ".nfs0001", store.directory / ".notes-x"]
    for path in kept:
        path.write_text("a user's")
    abandoned, in_work = (temporary(store.directory / "report.html") for _ in range(2))
    abandoned.write_text("half")
    with in_work.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a living process does that writes a report
        store.remove_leftovers()
    assert not abandoned.exists()
    assert all(path.exists() for path in (*kept, in_work))


def test_writers_and_a_sweeper_do_not_meet(tmp_path: Path) -> None:
    """A sweeper removes temporary files all the time; every file is written all the same."""
    store, ended = create(tmp_path / "run"), threading.Event()

    def sweep() -> None:
        while not ended.is_set():
            store.remove_leftovers()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(300):
            publish(store.directory / "report.html", str(number).encode())
    finally:
        ended.set()
        sweeper.join()
    assert (store.directory / "report.html").read_text() == "299"


def test_going_back(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    commit(store, 1, {"a": 1, "b": 0})
    commit(store, 2, {"a": 2, "b": 0})
    with pytest.raises(StoreError, match=r"round 7 .* is not kept; kept: 0, 1, 2"):
        store.go_back(7)
    store.go_back(1)
    assert RunStore.open(tmp_path / "run").manifest().round == 1


def test_manifests_that_cannot_be_trusted(tmp_path: Path) -> None:
    create(tmp_path / "run")
    path = tmp_path / "run" / "state" / "manifests" / "00000.json"
    good = json.loads(path.read_text())
    for text, message in [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("[" * 100_000, "is damaged"),
        (json.dumps({**good, "format": 99}), r"written by a newer pfedes \(format 99\)"),
        (json.dumps({k: v for k, v in good.items() if k != "sha256"}), "'sha256' is missing"),
        (path.read_text().replace("0.1", "0.2"), "do not match their checksum"),
    ]:
        path.write_text(text)
        with pytest.raises(StoreError, match=message):
            RunStore.open(tmp_path / "run").manifest()
    path.unlink()
    with pytest.raises(StoreError, match="has no manifest"):
        RunStore.open(tmp_path / "run").manifest()
    with pytest.raises(StoreError, match="is not a run directory"):
        RunStore.open(tmp_path)


def test_a_manifest_in_the_place_of_another(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    commit(store, 1, {"a": 1, "b": 0})
    manifests = store.state / "manifests"
    (manifests / "00001.json").rename(manifests / "00002.json")
    with pytest.raises(StoreError, match=r"00002.json is the manifest of round 1"):
        RunStore.open(tmp_path / "run").manifest()


def test_a_changed_roster_is_noticed(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    path = store.state / store.manifest().roster
    path.write_text(path.read_text().replace("8", "7"))
    with pytest.raises(StoreError, match=r"roster-.* is damaged"):
        store.cards(store.manifest())


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    other = RunStore.open(tmp_path / "run")
    busy = pytest.raises(StoreError, match="another process is working")
    with locked(store.state), busy, locked(other.state):
        pass
    with locked(other.state):
        pass


def test_rows_end_where_they_were_committed(tmp_path: Path) -> None:
    store = create(tmp_path / "run")
    one = store.append("rounds.jsonl", [{"round": 1}], Extent())
    store.append("rounds.jsonl", [{"round": 2, "lost": True}], one)  # never committed
    two = store.append("rounds.jsonl", [{"round": 2}], one)

    def rows(extent: Extent) -> list[dict[str, Any]]:
        metrics = {"metrics": {"rounds.jsonl": extent}}
        return store.rows("rounds.jsonl", manifest(0, {"a": 0}).model_copy(update=metrics))

    assert rows(two) == [{"round": 1}, {"round": 2}]
    assert rows(one) == [{"round": 1}]
    path = tmp_path / "run" / "rounds.jsonl"
    with pytest.raises(StoreError, match="shorter than"):
        append(path, b"", at=two.length + 1)
    with pytest.raises(StoreError, match="shorter than"):
        rows(Extent(length=two.length + 1))
    path.write_text(path.read_text().replace("2", "3"))
    assert rows(one) == [{"round": 1}]
    with pytest.raises(StoreError, match="do not match their checksum"):
        rows(two)


def test_what_is_published_others_may_read_and_nothing_else(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "own", b"mine")
        publish(tmp_path / "page", b"for all")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"own": 0o600, "page": 0o644}


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(DiskError, match=r"cannot write .*file: No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_removed_is_said_in_one_line(tmp_path: Path) -> None:
    """Such as a summary that somebody made a directory of, which a resume removes first."""
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(DiskError, match=r"summary\.json"):
        remove(tmp_path / "summary.json")
