"""The library gives the parameters that the naive Algorithm 1 gives."""

from collections.abc import Callable
from pathlib import Path

import torch

import reference
from pfedes import Federation
from pfedes.population.simulation import Simulation
from recording import SETTINGS, Recording, assert_same_way, close, orders_of, rows_by_label, setup
from reference import Weights, summed
from running import small


def test_pfedes_is_algorithm_1(tmp_path: Path) -> None:
    config = small(
        "pfedes", **SETTINGS, method__mu=0.3, method__extractor_epochs=2, method__extractor_lr=0.02
    )
    run = Federation(config, out=tmp_path / "run").run()

    simulation = Simulation(config)
    clients, hyper = setup(simulation)
    starts = {name: dict(client.weights) for name, client in clients.items()}
    start = simulation.method.start(simulation.population.cards(()), simulation.context(0))
    theta = {name: tensor.clone() for name, tensor in start.tensors.items()}
    before = dict(theta)
    for round in (1, 2):
        uploads = [
            reference.pfedes_round(
                client,
                theta,
                orders_of(simulation, name, "model", round, 2),
                orders_of(simulation, name, "extractor", round, 2),
                hyper,
            )
            for name, client in clients.items()
        ]
        theta = reference.average(uploads, [len(client.y) for client in clients.values()])

    for name, client in clients.items():
        assert_same_way(run.model(name).state_dict(), client.weights, starts[name])
    found = run.store.server_state(run.manifest).tensors
    assert_same_way(found, theta, before)


def test_standalone_is_plain_sgd(tmp_path: Path) -> None:
    config = small("standalone", **SETTINGS)
    run = Federation(config, out=tmp_path / "run").run()

    simulation = Simulation(config)
    clients, hyper = setup(simulation)
    starts = {name: dict(client.weights) for name, client in clients.items()}
    for round in (1, 2):
        for name, client in clients.items():
            orders = orders_of(simulation, name, "model", round, 2)
            reference.standalone_round(client, orders, hyper)

    for name, client in clients.items():
        assert_same_way(run.model(name).state_dict(), client.weights, starts[name])


# --- the five baselines ---


def test_fml(record: Callable[..., Recording]) -> None:
    seen = record("fml", method__alpha=0.3, method__beta=0.6)
    meme: Weights = seen.start.tensors
    for round in (1, 2, 3):
        uploads = []
        for name in seen.selected(round):
            close(seen.down(round, name).tensors, meme)
            client = seen.clients[name]
            new = reference.fml_round(client, meme, seen.orders(round, name), seen.hyper, 0.3, 0.6)
            close(seen.up(round, name).tensors, {k: v.detach() for k, v in new.items()})
            uploads.append((new, len(client.y)))
        meme = reference.average([u for u, _ in uploads], [n for _, n in uploads])
    seen.assert_models_agree()
    close(seen.run.store.server_state(seen.run.manifest).tensors, meme)


def test_lg_fedavg(record: Callable[..., Recording]) -> None:
    seen = record("lg_fedavg")
    shared: Weights = seen.start.tensors
    for round in (1, 2, 3):
        uploads = []
        for name in seen.selected(round):
            close(seen.down(round, name).tensors, shared)
            client = seen.clients[name]
            client.weights |= {f"fc3.{part}": tensor for part, tensor in shared.items()}
            reference.standalone_round(client, seen.orders(round, name), seen.hyper)
            new = {part: client.weights[f"fc3.{part}"].detach() for part in ("weight", "bias")}
            close(seen.up(round, name).tensors, new)
            uploads.append((new, len(client.y)))
        shared = reference.average([u for u, _ in uploads], [n for _, n in uploads])
    seen.assert_models_agree()
    close(seen.run.store.server_state(seen.run.manifest).tensors, shared)


def test_fd(record: Callable[..., Recording]) -> None:
    seen = record("fd", method__gamma=0.7)
    latest: dict[int, tuple[int, dict[str, torch.Tensor]]] = {}  # label -> round and reports
    targets_sent = 0
    for round in (1, 2, 3):
        reports: dict[str, dict[int, torch.Tensor]] = {}
        for name in seen.selected(round):
            client = seen.clients[name]
            targets = {}
            for label in sorted(set(client.y.tolist())):
                others = [r for who, r in latest.get(label, (0, {}))[1].items() if who != name]
                if others:
                    targets[label] = torch.stack(others).mean(0)
            close(rows_by_label(seen.down(round, name), "targets"), targets)
            targets_sent += len(targets)
            orders = seen.orders(round, name)
            reports[name] = reference.fd_round(client, targets, orders, seen.hyper, 0.7)
            close(rows_by_label(seen.up(round, name), "outputs"), reports[name])
        for label in {label for report in reports.values() for label in report}:
            holders = {who: report[label] for who, report in reports.items() if label in report}
            latest[label] = (round, holders)
    assert targets_sent, "nobody was ever sent a target: the comparison is idle"
    seen.assert_models_agree()
    state = seen.run.store.server_state(seen.run.manifest).tensors
    close(state, {f"{y}/{who}": r for y, (_, all_) in latest.items() for who, r in all_.items()})


def test_fedproto(record: Callable[..., Recording]) -> None:
    seen = record("fedproto", method__lambda=2.0)
    table: dict[int, torch.Tensor] = {}
    for round in (1, 2, 3):
        reports = []
        for name in seen.selected(round):
            client = seen.clients[name]
            counts = {y: int((client.y == y).sum()) for y in set(client.y.tolist())}
            own = {y: table[y] for y in counts if y in table}
            close(rows_by_label(seen.down(round, name), "prototypes"), own)
            orders = seen.orders(round, name)
            means = reference.fedproto_round(client, own, orders, seen.hyper, 2.0)
            close(rows_by_label(seen.up(round, name), "prototypes"), means)
            assert seen.up(round, name).meta["counts"] == [counts[y] for y in sorted(counts)]
            reports.append((means, counts))
        for label in {y for means, _ in reports for y in means}:
            held = [(m[label], n[label]) for m, n in reports if label in m]
            table[label] = summed(p * n for p, n in held) / sum(n for _, n in held)
    seen.assert_models_agree()
    close(rows_by_label(seen.run.store.server_state(seen.run.manifest), "prototypes"), table)


def test_fedkd(record: Callable[..., Recording]) -> None:
    seen = record("fedkd", method__weight_floor=0.2)
    mentee: Weights = {k.removeprefix("full/"): v for k, v in seen.start.tensors.items()}
    for name, client in seen.clients.items():
        with seen.simulation.streams.ambient("init.w_h", client=name):
            client.w_h = torch.nn.Linear(500, 500, bias=False).weight.detach()
    aggregated, update_floats, full_floats = 0, 0, 670_058
    kinds = set()
    for round in (1, 2, 3):
        energy = 0.95 + round / 3 * 0.03
        changes = []
        for name in seen.selected(round):
            client = seen.clients[name]
            took_part = client.last_round == aggregated > 0
            kinds.add(took_part)
            assert seen.down(round, name).floats == (update_floats if took_part else full_floats)
            orders = seen.orders(round, name)
            change = reference.fedkd_round(client, mentee, orders, seen.hyper, 0.2)
            client.mentee, client.last_round = mentee, round
            change, floats = reference.low_rank(change, energy)
            assert seen.up(round, name).floats == floats < full_floats
            changes.append((change, len(client.y)))
        mean = reference.average([c for c, _ in changes], [n for _, n in changes])
        mean, update_floats = reference.low_rank(mean, energy)
        mentee = {name: mentee[name] + mean[name] for name in mentee}
        aggregated = round
    assert kinds == {True, False}, "both kinds of download have to occur"
    seen.assert_models_agree()
    state = seen.run.store.server_state(seen.run.manifest).tensors
    close({k.removeprefix("full/"): v for k, v in state.items() if k.startswith("full/")}, mentee)
    for name, client in seen.clients.items():
        if client.mentee is not None:
            kept = seen.version(name).state
            assert client.w_h is not None
            close(kept["kept.w_h"], client.w_h)
            copy = {k.removeprefix("kept.mentee."): v for k, v in kept.items() if "mentee" in k}
            close(copy, client.mentee)
