"""The queue of published runs: its order, its priority, and that it can be stopped."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pfedes.methods.pfedes import PFedESConfig
from pfedes.reproduction.experiments import experiments
from pfedes.reproduction.queue import STAGES, Queue, Stage
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import CONVERGED
from pfedes.reproduction.scenario import COMPARED, Setting
from pfedes.sweep.cells import Outcome
from pfedes.sweep.local import LOWEST_PRIORITY, yield_processor
from running import hyper_parameters
from scales import TINY

SETTINGS = [Setting("standalone"), Setting("fd")]
SMALL = (
    Stage("first", "a run", TINY, lambda _: [Setting("standalone")]),
    Stage("second", "it again, and another", TINY, lambda _: SETTINGS),
)


def test_the_most_informative_runs_come_first(tmp_path: Path) -> None:
    queue = Queue(tmp_path, None)
    first = [cell.config for cell in queue.cells("a")]
    assert sorted(config.method.name for config in first) == sorted(COMPARED)
    assert [config.method.name for config in first][:3] == ["standalone", "pfedes", "fedproto"]
    for config in first:
        assert (config.data.source, config.partition.clients) == ("cifar10", 100)
        assert (config.train.rounds, config.train.epochs, config.train.batch_size) == (100, 10, 64)
        assert config.train.augment
    # Seed 0 of the three close methods is in (a); what is left are two seeds of each, three
    # variants of the ablation with three seeds each, and three runs without augmentation.
    third = [cell.config for cell in queue.cells("c")]
    assert len(third) == 2 * 3 + 3 * 3 + 3
    assert [config.method.name for config in third if not config.train.augment] == [
        *("standalone", "pfedes", "fedproto")
    ]
    assert len(queue.missing()) == sum(len(queue.cells(stage.name)) for stage in STAGES)


def test_a_client_trains_for_100_epochs_at_every_n() -> None:
    for clients, share in ((10, 1.0), (50, 0.2), (100, 0.1)):
        cell = Setting("pfedes", clients=clients, participation=share)
        (config,) = CONVERGED.configs(cell)
        train = config.train
        assert train.rounds * train.participation * train.epochs == pytest.approx(100)
        method = hyper_parameters(config, PFedESConfig)
        assert (method.mu, method.extractor_epochs) == (0.1, 5)


def test_it_is_stopped_and_continues(tmp_path: Path) -> None:
    archive = tmp_path / "kept"
    others = set(children())  # those of fixtures that this process built for other tests
    seen: dict[int, int] = {}  # the last priority of each process: it is lowered after the start

    def interrupt(working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
        own = set(children()) - others
        seen.update((pid, os.getpriority(os.PRIO_PROCESS, pid)) for pid in own)
        if (archive / "smoke").exists():
            raise KeyboardInterrupt

    queue = Queue(tmp_path / "out", archive, stages=SMALL)
    every = list(experiments().values())
    with pytest.raises(KeyboardInterrupt):
        queue.perform(every, jobs=1, watch=interrupt)
    assert set(seen.values()) == {LOWEST_PRIORITY}
    (first,), (second,) = queue.cells("first"), queue.cells("second")
    assert queue.missing() == [second]
    kept = archive / "smoke" / "cells"
    before = (kept / first.name / "summary.json").stat().st_mtime_ns
    # From a clone that has nothing but the archive.
    elsewhere = Queue(tmp_path / "elsewhere", archive, stages=SMALL)
    assert elsewhere.perform(every, jobs=1) == {}
    assert elsewhere.missing() == []
    assert (kept / first.name / "summary.json").stat().st_mtime_ns == before
    # The first clone may hold the run that was stopped; where all ended, no state is left.
    assert not [*archive.rglob("*.safetensors"), *elsewhere.root.rglob("*.safetensors")]
    for cell in (first, second):
        record = Record.of(kept / cell.name, cell.config)
        assert record is not None
        assert len(record.rounds) == cell.rounds
        assert {path.name for path in (kept / cell.name).iterdir()} == {
            *("config.toml", "summary.json", "environment.json"),
            *("clients.jsonl.gz", "rounds.jsonl.gz"),
        }


@pytest.mark.usefixtures("cells_here")
def test_a_run_that_fails_is_named_and_the_others_continue(tmp_path: Path) -> None:
    broken = Setting("standalone", options=(("data.source", "folder:nowhere"),))
    stage = Stage("first", "", TINY, lambda _: [broken, Setting("fd")])
    queue = Queue(tmp_path / "out", tmp_path / "kept", stages=[stage])
    failed = queue.perform([], jobs=1)
    bad, good = queue.cells("first")
    assert list(failed) == [bad.name]
    assert "nowhere" in failed[bad.name]
    assert queue.missing() == [bad]
    assert good.finished() is False  # its states are gone; the record is there
    assert (tmp_path / "kept" / "smoke" / "cells" / good.name / "summary.json").is_file()


def test_all_processes_of_a_session_get_the_lowest_priority() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield_processor(process.pid)
        priority = os.getpriority(os.PRIO_PROCESS, process.pid)
        group = Path(f"/proc/{process.pid}/autogroup")
        said = group.read_text() if group.exists() else "nice 19"
        process.kill()
    assert priority == LOWEST_PRIORITY
    assert said.strip().endswith("nice 19")
    yield_processor(process.pid)  # one that has ended needs no yielding


def children() -> list[int]:
    """The processes that this one has started and not waited for."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for path in tasks for pid in path.read_text().split()]
