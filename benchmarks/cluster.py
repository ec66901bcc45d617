"""What a cluster costs beside worker processes on the same machine, for the same work.

Two nodes over loopback, with TLS. Clients train for a moment only, so that a round is little more
than what is done around the training: sending states, fetching and committing them. A sweep of
small runs is done by both nodes, and by two processes without any cluster.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pfedes import Config, configure
from pfedes.core.protocol import Reply, Task
from pfedes.fleet import make_fleet
from pfedes.fleet.dask.fleet import WRITERS
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from pfedes.sweep.compare import cells_of
from pfedes.sweep.execute import run_cells

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from clusters import Cluster

CLIENTS = 10
STATES = {
    "tiny": ("synthetic:samples=400,size=16", "cnn5"),
    "10 MB": ("synthetic:samples=400", "cnn1"),
}
MANNERS: dict[str, dict[str, Any]] = {
    "workers": {"runtime.fleet": "workers", "runtime.workers": 2},
    "states travel both ways": {"runtime.share_directory": False},
    "to warm nodes": {"runtime.share_directory": False},
    "in the run directory": {"runtime.share_directory": True},
}


def cluster(rounds: int = 12, cells: int = 20) -> list[dict[str, Any]]:
    """Seconds of a round and of a sweep, each beside the same without a cluster."""
    with tempfile.TemporaryDirectory() as place, Cluster(Path(place) / "cluster") as there:
        for name in ("node1", "node2"):
            there.add(name)
        there.wait_for(2)
        there_too = {key.replace("__", "."): value for key, value in there.settings.items()}
        rows = []
        for state, (data, model) in STATES.items():
            home = Path(place) / model
            rows += _rounds(state, data, model, there_too, home, rounds)
        return [*rows, *_sweep(there_too, Path(place), cells)]


def _rounds(
    state: str, data: str, model: str, there: dict[str, Any], place: Path, rounds: int
) -> list[dict[str, Any]]:
    fleets = {name: Rounds(name, data, model, there, place) for name in MANNERS}
    seconds: dict[str, list[float]] = {name: [] for name in fleets}
    for turn in range(rounds + 2):
        for name, fleet in fleets.items():
            spent = fleet.run()
            if turn > 1:  # the first ones start processes, and have no state to send
                seconds[name].append(spent)
    commit = fleets["states travel both ways"].commit()
    for fleet in fleets.values():
        fleet.close()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return [
        {
            "work": f"{CLIENTS} clients, {state}",
            "how": name,
            "seconds": median,
            "more than without": median - medians["workers"],
            "MB of a state": fleets[name].megabytes(),
        }
        for name, median in medians.items()
    ] + [
        {
            "work": f"1 client, {state}",
            "how": "committed by the driver",
            "seconds": commit,
            "more than without": 0.0,
            "MB of a state": fleets["workers"].megabytes(),
        }
    ]


class Rounds:
    """The same clients, round after round, by one fleet."""

    def __init__(
        self, name: str, data: str, model: str, there: dict[str, Any], place: Path
    ) -> None:
        settings = {"models.pool": [model], "train.epochs": 1, "method.extractor_epochs": 1}
        settings |= MANNERS[name] if name == "workers" else {**there, **MANNERS[name]}
        self.forgetting = name == "states travel both ways"
        self.root = place / name.replace(" ", "-") / "state" / "clients"
        self.root.mkdir(parents=True)
        config = configure(data=data, clients=CLIENTS, settings=settings)
        simulation = Simulation(config)
        self.fleet: Any = make_fleet(simulation, ClientStore(self.root))
        method, ctx = simulation.method, simulation.context(1)
        cards = simulation.population.cards(method.needs)
        state = method.start(cards, ctx)
        self.downloads = {card.name: method.download(state, card, ctx) for card in cards}
        self.round = 0

    def run(self) -> float:
        before, self.round = self.round, self.round + 1
        if self.forgetting:
            self.fleet.warm.clear()
        tasks = self.tasks = [
            Task("bench", client, self.round, before, download)
            for client, download in self.downloads.items()
        ]
        began = time.perf_counter()
        for answer in self.fleet.round(tasks):
            assert isinstance(answer, Reply), answer
        return time.perf_counter() - began

    def commit(self, repetitions: int = 5) -> float:
        """Seconds in which the driver takes in one state, with all its threads."""
        host = self.fleet.host
        states = [host.store.contents("bench", task.client, self.round) for task in self.tasks]
        began = time.perf_counter()
        with ThreadPoolExecutor(WRITERS) as threads:
            for _ in range(repetitions):
                list(threads.map(host.take_in, self.tasks, states))
        return (time.perf_counter() - began) / repetitions / len(states)

    def megabytes(self) -> float:
        return next(self.root.rglob(f"{self.round:05d}.safetensors")).stat().st_size / 1e6

    def close(self) -> None:
        self.fleet.close()


def _sweep(there: dict[str, Any], place: Path, cells: int) -> list[dict[str, Any]]:
    small = {"data.limit": 200, "train.epochs": 1, "runtime.report": False}
    config = configure(method="standalone", clients=4, rounds=2, settings=small)
    runtime = configure(settings=there).runtime
    ways: dict[str, Callable[[Path], Any]] = {
        "two processes": lambda out: run_cells(_cells(config, cells, out), jobs=2),
        "two nodes": lambda out: run_cells(_cells(config, cells, out), cluster=runtime),
    }
    seconds = {}
    for name, way in ways.items():
        began = time.perf_counter()
        outcomes = way(place / name.replace(" ", "-"))
        seconds[name] = time.perf_counter() - began
        assert all(outcome.run is not None for outcome in outcomes), outcomes
    return [
        {
            "work": f"a sweep of {cells} small runs",
            "how": name,
            "seconds": spent,
            "more than without": spent - seconds["two processes"],
            "MB of a state": 0.0,
        }
        for name, spent in seconds.items()
    ]


def _cells(config: Config, count: int, out: Path) -> list[Any]:
    return cells_of(config, ["standalone"], range(count), out)


if __name__ == "__main__":
    for row in cluster():
        print(row)
