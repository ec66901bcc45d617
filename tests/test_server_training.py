"""Training at the server: its batches, its costs, and what the card of a client may say."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfedes import Card, Federation, Limits, MethodError, Participant, Payload, configure
from pfedes.core.context import Context
from pfedes.core.payload import State
from pfedes.core.training import train_rows
from pfedes.formatting import count
from pfedes.methods.base import Received
from pfedes.methods.fedgh import FedGH
from pfedes.methods.fedmrl import Fused
from pfedes.methods.fedssa import FedSSA
from pfedes.models import build_model
from pfedes.models.head import head_of, represent
from pfedes.population.consent import Consent
from pfedes.population.simulation import Simulation
from pfedes.report.wire import COUNTS, wire_report
from pfedes.results.disclosure import told_by
from pfedes.results.summary import until
from pfedes.sweep.compare import Result, table_of
from running import small

SHAPE = (3, 32, 32)


def context(round: int = 1) -> Context:
    return Simulation(small("fedgh")).context(round)


def trained(ctx: Context, **options: Any) -> list[list[float]]:
    """The rows of each step, while a weight learns to be their mean."""
    seen: list[list[float]] = []
    module = nn.Linear(1, 1)

    def loss(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert torch.equal(targets, 2 * rows[:, 0])
        seen.append(rows[:, 0].tolist())
        return F.mse_loss(module(rows)[:, 0], targets)

    rows = torch.arange(5.0)[:, None]
    train_rows(module, rows, 2 * rows[:, 0], loss, **{"lr": 0.1, **options}, ctx=ctx)
    return seen


def test_every_epoch_is_a_new_permutation_and_keeps_its_last_batch() -> None:
    seen = trained(context(), epochs=3, batch=2)
    assert [len(step) for step in seen] == [2, 2, 1] * 3
    epochs = [list(chain(*seen[start : start + 3])) for start in (0, 3, 6)]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert trained(context(), epochs=3, batch=2) == seen
    assert trained(context(round=2), epochs=3, batch=2) != seen
    stream = context().streams.torch("server.batches", round=1)
    assert epochs[0] == torch.randperm(5, generator=stream).tolist()


def test_all_rows_at_once() -> None:
    assert [len(step) for step in trained(context(), epochs=2, batch=0)] == [5, 5]
    assert [len(step) for step in trained(context(), epochs=1, batch=9)] == [5]


def test_a_step_by_hand_and_what_it_costs() -> None:
    """A head of zeros, p = (2, 0), label 0 of 2, rate 0.1: softmax - onehot is (-0.5, 0.5)."""
    ctx, head = context(), nn.Linear(2, 2)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    train_rows(
        head,
        torch.tensor([[2.0, 0.0]]),
        torch.tensor([0]),
        lambda rows, labels: F.cross_entropy(head(rows), labels),
        lr=0.1,
        epochs=1,
        batch=10,
        ctx=ctx,
    )
    assert torch.allclose(head.weight, torch.tensor([[0.1, 0.0], [-0.1, 0.0]]))
    assert torch.allclose(head.bias, torch.tensor([0.05, -0.05]))
    assert ctx.meter.total == 4 * 1 * 2 * 2
    assert context().meter.total == 0  # every round has a meter of its own


@pytest.mark.parametrize(
    ("method", "a_round"),
    [
        ("fedgh", 4 * 8 * 10 * 500),
        ("fedre", 4 * 4 * 10 * 500),
        # 8 rows make one step: 12 L d^2 + 4 b L d, a hundred times.
        ("fedtgp", 100 * (12 * 10 * 500**2 + 4 * 8 * 10 * 500)),
    ],
)
def test_what_a_server_computes_is_in_rows_summary_and_report(
    method: str, a_round: int, tmp_path: Path
) -> None:
    config = small(method, partition__classes_per_client=2, models__pool=["cnn5"],
                   runtime__report=True, evaluate__targets=[0.01])  # fmt: skip
    run = Federation(config, out=tmp_path / "run").run()
    assert [row["flops_server"] for row in run.rounds] == [a_round, a_round]
    assert run.summary["flops_server"] == 2 * a_round
    assert run.summary["targets"][0]["flops_server"] == a_round
    assert run.summary["flops"] == sum(row["flops"] for row in run.clients)
    page = (run.directory / "report.html").read_text()
    assert "computed by the server" in page
    assert "server FLOP" in page


def test_rows_of_methods_that_do_not_train_there_are_as_they_were(tmp_path: Path) -> None:
    run = Federation(small("lg_fedavg", runtime__report=True), out=tmp_path / "run").run()
    assert all("flops_server" not in row for row in [*run.rounds, run.summary])
    assert "server FLOP" not in (run.directory / "report.html").read_text()


def test_costs_until_a_target_with_a_server_that_trained() -> None:
    row = {"accuracy": 0.1, "floats_down": 1, "floats_up": 2, "flops": 3, "flops_server": 4}
    rounds = [{**row, "round": 1}, {**row, "round": 2, "accuracy": 0.5}]
    assert until(0.5, rounds)["flops_server"] == 8


# --- the card ---


def test_labels_are_classes_without_their_counts() -> None:
    card = Card("a", 30, SHAPE, classes={1: 10, 4: 20}, width=500, parameters={})
    assert card.revealing({"labels"}).classes == {1: 1, 4: 1}
    assert card.revealing({"labels", "classes"}).classes == {1: 10, 4: 20}
    assert card.revealing(()).classes is None
    assert "its classes" in told_by(card.revealing({"labels"}))
    assert "its classes, with the number of training samples of each" in told_by(card)


def test_no_count_is_in_the_roster(tmp_path: Path) -> None:
    run = Federation(small("fedgh", train__rounds=1), out=tmp_path / "run").run()
    (roster,) = (run.directory / "state").glob("roster-*")
    assert all(set(card["classes"].values()) == {1} for card in json.loads(roster.read_text()))
    report = wire_report(run, run.simulation)
    assert "its classes" in report.on_card
    assert COUNTS in report.not_on_card


def test_a_server_cannot_ask_for_counts_that_nobody_agreed_to() -> None:
    ctx = context()
    card = Card("a", 30, SHAPE, classes={1: 10, 4: 20}, width=500)
    plain, weighted = FedSSA(), FedSSA(averaging="weighted")
    assert plain.needs == {"labels", "width"}
    assert weighted.needs == {"labels", "classes", "width"}
    told = {"averaging": "weighted"}
    assert list(Consent(("fedssa",), {}, Limits()).refusals(plain, card, ctx)) == []
    (reason,) = Consent(("fedssa",), {}, Limits()).refusals(weighted, card, ctx)
    assert "averaging = 'weighted'" in reason
    for method in (plain, weighted):
        assert list(Consent(("fedssa",), told, Limits()).refusals(method, card, ctx)) == []


def test_epochs_at_the_server_are_not_the_clients() -> None:
    ctx = context()
    assert FedGH(server_epochs=100).client_epochs(ctx) == ctx.train.epochs


# --- heads ---


def test_a_head_without_bias_is_refused_before_round_1(tmp_path: Path) -> None:
    people = [
        Participant(
            name=name, model="bare:bare", data=f"tiny:{name}_rows", methods=("fedgh", "lg_fedavg")
        )
        for name in ("ada", "ben")
    ]
    for method in ("fedgh", "lg_fedavg"):
        config = configure(
            method=method,
            participants=people,
            settings={
                "federation.classes": ["zero", "one", "two", "three"],
                "runtime.fleet": "serial",
            },
        )
        with pytest.raises(MethodError, match=r"^ada: its head has no bias.*bias=True"):
            Federation(config, out=tmp_path / "run").run()
        assert not (tmp_path / "run").exists()


def test_a_single_step_of_fedgh_on_uploads() -> None:
    method, ctx = FedGH(server_lr=0.1), replace(context(), classes=2)
    state = State({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)})
    card = Card("a", 3, SHAPE, classes={0: 1}, width=2)
    upload = Received(card, Payload({"prototypes": torch.tensor([[2.0, 0.0]])}, {"labels": [0]}))
    new = method.aggregate(state, [upload], ctx)
    assert torch.allclose(new.tensors["weight"], torch.tensor([[0.1, 0.0], [-0.1, 0.0]]))
    still = FedGH(server_lr=0.0).aggregate(new, [upload], ctx)
    assert all(torch.equal(still.tensors[name], new.tensors[name]) for name in new.tensors)


def test_the_head_classifies_what_was_fused() -> None:
    torch.manual_seed(0)
    model, x = build_model("cnn5", 10, SHAPE), torch.randn(4, *SHAPE)
    rep, logits = represent(model, x)
    doubled, others = represent(model, x, lambda own: 2 * own)
    assert torch.equal(doubled, 2 * rep)
    assert torch.equal(others, head_of(model)(2 * rep))
    assert torch.equal(model(x), logits)  # and nothing is left behind


def test_fused_by_hand() -> None:
    """rep_small = 1, rep = (2, 3), W = ((1, 0, 0), (0, 1, 1)): z = (1, 5), in this order."""

    class Small(nn.Module):
        def represent(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(x), 1)

    model = nn.Sequential(nn.Identity(), nn.Linear(2, 2))
    projector = nn.Linear(3, 2, bias=False)
    projector.weight.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    fused = Fused(model, Small(), projector)  # type: ignore[arg-type]  # a fake CNN
    z, logits = fused.represent(torch.tensor([[2.0, 3.0]]))
    assert z.tolist() == [[1.0, 5.0]]
    assert torch.equal(logits, model[1](z))


def test_small_models_may_be_narrower() -> None:
    model = build_model("cnn5", 10, SHAPE, 100)
    assert sum(p.numel() for p in model.parameters()) == 465_658
    assert model.represent(torch.zeros(1, *SHAPE)).shape == (1, 100)


def test_a_small_model_that_is_wider_than_a_clients_is_refused(tmp_path: Path) -> None:
    config = small("fedmrl", method__representation=501)
    with pytest.raises(MethodError, match="has 500 numbers, the small model's 501"):
        Federation(config, out=tmp_path / "run").run()


def test_a_client_that_was_never_selected_has_its_initial_projector(tmp_path: Path) -> None:
    config = small("fedmrl", train__participation=0.25, train__rounds=1)
    run = Federation(config, out=tmp_path / "run").run()
    name = next(n for n, standing in run.manifest.clients.items() if not standing.version)
    simulation = Simulation(config)
    client, ctx = simulation.population.client(name), simulation.context(0)
    simulation.method.prepare(client, ctx)
    expected = simulation.method.personal(client, None, ctx).state_dict()
    found = run.model(name).state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert run.client(name)[0].kept.keys() == client.kept.keys()


# --- comparisons ---


def test_a_comparison_shows_what_servers_computed_where_any_did(tmp_path: Path) -> None:
    few = {"models__pool": ["cnn5"], "data__limit": 80, "train__rounds": 1}
    results = []
    for method in ("fedgh", "standalone"):
        run = Federation(small(method, **few), out=tmp_path / method).run()
        results.append(Result(method, {}, [run.summary], None))
    spent = results[0].record()["flops_server"]
    assert spent == results[0].summaries[0]["flops_server"] > 0
    assert "flops_server" not in results[1].record()
    table = table_of(results, [])
    place = table.columns.index("server FLOP")
    assert {row[0]: row[place] for row in table.rows} == {"fedgh": count(spent), "standalone": "0"}
    assert "server FLOP" not in table_of(results[1:], []).columns
