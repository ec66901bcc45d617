"""What the baselines promise: exact payloads, exact limits, no leaking gradients."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from pfedes import Card, Client, Federation, MethodError, Payload, Standalone
from pfedes.core.payload import State, Value
from pfedes.core.samples import Batch
from pfedes.methods import METHODS
from pfedes.methods import _low_rank as low_rank
from pfedes.methods._class_means import ClassMeans, LabelTable
from pfedes.methods._distillation import kl_from
from pfedes.methods.base import Problem, Received, check_widths, in_one_line
from pfedes.methods.fd import FD, distilled_loss
from pfedes.methods.fedkd import FedKD, FedKDConfig, energy_at, mentor_and_mentee_losses
from pfedes.methods.fedproto import FedProto, NearestPrototype, prototype_loss
from pfedes.methods.fml import FMLConfig, mutual_losses
from pfedes.models import build_model
from pfedes.population.simulation import Simulation
from running import hyper_parameters, result, small


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- what travels ---

CNN1 = {10: 2_621_558, 100: 2_666_648}
CNN5 = {10: 670_058, 100: 715_148}
OWN = {10: 2, 100: 10}  # classes per client


def floats(method: str, classes: int, homogeneous: bool) -> tuple[int, int, int]:
    """Down in round 1, down in round 2 and up, per client."""
    shared = (CNN1 if homogeneous else CNN5)[classes]
    own = OWN[classes]
    return {
        "pfedes": (443, 443, 443),
        "standalone": (0, 0, 0),
        "fedavg": (CNN1[classes], CNN1[classes], CNN1[classes]),
        "fml": (shared, shared, shared),
        "fedkd": (shared, shared, shared),  # with compression off
        "lg_fedavg": (500 * classes + classes,) * 3,
        "fd": (0, own * classes, own * classes),
        "fedproto": (0, own * 500, own * 500),
        "fedssa": (own * 501,) * 3,
        "fedgh": (501 * classes, 501 * classes, own * 500),
        "fedre": (501 * classes, 501 * classes, 500 + own),
        "fedtgp": (0, own * 500, own * 500),
        "fedmrl": ({10: 465_658, 100: 474_748}[classes],) * 3,
    }[method]


@pytest.mark.parametrize("homogeneous", [True, False], ids=["homogeneous", "heterogeneous"])
@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("method", METHODS)
def test_payloads_are_exactly_those_specified(method: str, classes: int, homogeneous: bool) -> None:
    if method == "fedavg" and not homogeneous:
        pytest.skip("FedAvg is homogeneous")
    clients = classes // OWN[classes] * 2  # two holders of every class
    options = {"method__compression": False} if method == "fedkd" else {}
    simulation = Simulation(
        small(
            method,
            data__source=f"synthetic:samples={8 * classes},classes={classes}",
            data__limit=0,
            partition__clients=clients,
            partition__classes_per_client=OWN[classes],
            models__pool=["cnn1"] if homogeneous else ["cnn1", "cnn2", "cnn3", "cnn4", "cnn5"],
            models__assign="round_robin",
            train__batch_size=64,
            **options,
        )
    )
    rule = simulation.method
    # What some are sent depends on who else has their classes; for the others two show it.
    by_class = method in ("fd", "fedproto", "fedtgp")
    some = slice(10 if by_class and classes == 10 else 2)
    names, cards = simulation.population.names[some], simulation.population.cards(rule.needs)[some]
    first, second, up = floats(method, classes, homogeneous)
    ctx = simulation.context(1)
    state = rule.start(cards, ctx)
    uploads = []
    for name, card in zip(names, cards, strict=True):
        wire = rule.allowed(card, ctx)
        download = rule.download(state, card, ctx)
        wire.down.check(download)
        assert download.floats == first
        client = simulation.population.client(name)
        rule.prepare(client, ctx)
        upload = rule.client_round(client, download, ctx)
        sent = Payload(upload.tensors, upload.meta)
        wire.up.check(sent)
        assert sent.floats == up
        if {"classes", "labels"} & rule.needs:  # class ids, and counts: metadata, not floats
            assert sent.metadata == OWN[classes] * (2 if method == "fedproto" else 1)
        uploads.append(Received(card, sent))
    # Where only some clients worked, their classes' other holders would complete the tables.
    state = rule.aggregate(state, uploads, ctx)
    later = simulation.context(2)
    found = [rule.download(state, replace(card, accepted=1), later).floats for card in cards]
    assert max(found) <= second
    if len(names) == clients or not by_class:
        assert set(found) == {second}


def test_fedproto_can_send_the_whole_table() -> None:
    method = FedProto(table="full")
    ctx = Simulation(small("fedproto")).context(2)
    state = State({"prototypes": torch.zeros(10, 500)}, {"labels": list(range(10))})
    card = Card("a", 5, (3, 32, 32), classes={1: 5}, width=500)
    download = method.download(state, card, ctx)
    assert download.floats == 5000
    method.allowed(card, ctx).down.check(download)
    assert FedProto().download(state, card, ctx).floats == 500


# --- limits in which they are Standalone ---


def weights_after(method: str, tmp_path: Path, **options: Any) -> dict[str, Any]:
    overlapping = {"partition__classes_per_client": 5, "train__participation": 0.75}
    config = small(method, **{**overlapping, "train__rounds": 3, **options})
    run = Federation(config, out=tmp_path / f"{method}-{len(options)}").run()
    return {
        "models": {
            n: Payload(dict(run.model(n).state_dict())).digest() for n in run.manifest.clients
        },
        "accuracy": [row["accuracy"] for row in run.rounds],
    }


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fml", {"method__alpha": 1.0}),
        ("fd", {"method__gamma": 0.0}),
        ("fedproto", {"method__lambda": 0.0}),
        ("fedtgp", {"method__lambda": 0.0}),
    ],
)
def test_without_its_extra_term_a_method_is_standalone(
    method: str, options: dict[str, float], tmp_path: Path
) -> None:
    alone = weights_after("standalone", tmp_path)
    assert weights_after(method, tmp_path, **options) == alone
    assert weights_after(method, tmp_path) != alone


def test_fd_with_one_holder_per_class_is_standalone(tmp_path: Path) -> None:
    one_holder = {
        "partition__clients": 5,
        "partition__classes_per_client": 2,
        "method__gamma": 1.0,
    }
    found = weights_after("fd", tmp_path, **one_holder)
    del one_holder["method__gamma"]
    assert found == weights_after("standalone", tmp_path, **one_holder)


# --- distillation ---


def test_kl_by_hand() -> None:
    """p = (3/4, 1/4), q = (1/2, 1/2): KL(p || q) = 3/4 ln(3/2) + 1/4 ln(1/2)."""
    p, q = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[1.0, 1.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert kl_from(p, q).item() == pytest.approx(expected)
    assert kl_from(p.repeat(7, 1), q.repeat(7, 1)).item() == pytest.approx(expected)
    assert kl_from(q, p).item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))


def pair() -> tuple[nn.Module, nn.Module, Batch]:
    torch.manual_seed(0)
    models = [build_model("cnn5", 10, (3, 32, 32)) for _ in range(2)]
    return models[0], models[1], Batch(torch.randn(6, 3, 32, 32), torch.arange(6))


def reached(loss: torch.Tensor, model: nn.Module) -> bool:
    gradients = torch.autograd.grad(
        loss, list(model.parameters()), allow_unused=True, retain_graph=True
    )
    return any(g is not None and bool(g.any()) for g in gradients)


def test_fml_losses_reach_their_own_model_only() -> None:
    own, meme, batch = pair()
    loss_own, loss_meme = mutual_losses(own, meme, batch, FMLConfig(alpha=0.2, beta=0.7))
    assert reached(loss_own, own)
    assert not reached(loss_own, meme)
    assert reached(loss_meme, meme)
    assert not reached(loss_meme, own)


def test_fedkd_losses_reach_their_own_model_only() -> None:
    mentor, mentee, batch = pair()
    w_h = nn.Linear(500, 500, bias=False)
    loss_t, loss_s = mentor_and_mentee_losses(mentor, mentee, w_h, batch, FedKDConfig())
    assert reached(loss_t, mentor)
    assert not reached(loss_t, mentee)
    assert not reached(loss_t, w_h)
    assert reached(loss_s, mentee)
    assert not reached(loss_s, mentor)
    assert reached(loss_s, w_h)


def test_fedkds_weight_is_bounded_and_constant() -> None:
    """With both losses near 0 the original's weight explodes; ours stays at 1 / floor."""
    mentor, mentee, batch = pair()
    for model in (mentor, mentee):
        with torch.no_grad():
            head = list(model.children())[-1]
            head.get_parameter("weight").zero_()
            head.get_parameter("bias").copy_(torch.tensor([60.0] + [0.0] * 9))
    certain = Batch(batch.x, torch.zeros(6, dtype=torch.int64))
    w_h = nn.Linear(500, 500, bias=False)
    bounded, _ = mentor_and_mentee_losses(
        mentor, mentee, w_h, certain, FedKDConfig(weight_floor=0.1)
    )
    tighter, _ = mentor_and_mentee_losses(
        mentor, mentee, w_h, certain, FedKDConfig(weight_floor=1.0)
    )
    assert bounded.item() == pytest.approx(10 * tighter.item(), rel=1e-4)
    through = mentor_and_mentee_losses(
        mentor, mentee, w_h, batch, FedKDConfig(grad_through_weight=True)
    )
    assert reached(through[0], mentee)  # the original's fault, there for who wants it


# --- FedKD's compression ---


def sent_back(change: dict[str, torch.Tensor], energy: float) -> dict[str, torch.Tensor]:
    return low_rank.expand(
        low_rank.compress(change, energy), {name: t.shape for name, t in change.items()}
    )


def test_updates_of_any_rank_survive() -> None:
    torch.manual_seed(0)
    one = torch.outer(torch.randn(40), torch.randn(60))
    full, kernel = torch.randn(10, 500), torch.randn(16, 3, 5, 5)
    change = {"one": one, "full": full, "none": torch.zeros(30, 20), "kernel": kernel,
              "bias": torch.randn(10)}  # fmt: skip
    packed = low_rank.compress(change, 0.95)
    assert packed["one/factors"].shape == (1, 101)
    assert packed["none/factors"].numel() == 0
    assert "full" in packed  # all ten values are needed: ten factors would be larger than dense
    back = sent_back(change, 0.95)
    torch.testing.assert_close(back["one"], one, rtol=1e-4, atol=1e-5)
    assert torch.equal(back["full"], full)
    assert not back["none"].any()
    assert back["kernel"].shape == kernel.shape
    assert torch.equal(back["bias"], change["bias"])


@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 8),
    st.floats(0.05, 1.0),
    st.integers(0, 99),
)
def test_compression_keeps_the_energy_and_never_costs_more(
    rows: int, columns: int, rank: int, energy: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.randn(rows, rank, generator=generator),
        torch.randn(rank, columns, generator=generator),
    )
    matrix = left @ right
    packed = low_rank.compress({"m": matrix}, energy)
    assert sum(t.numel() for t in packed.values()) <= matrix.numel()
    back = sent_back({"m": matrix}, energy)["m"]
    kept = 1 - ((matrix - back).norm() / matrix.norm()).item() ** 2
    assert kept >= energy - 1e-3


def test_what_is_not_finite_is_not_decomposed() -> None:
    packed = low_rank.compress({"m": torch.full((50, 50), torch.nan)}, 0.9)
    assert list(packed) == ["m"]


def test_svd_flops_of_the_shared_models() -> None:
    """About 7 GFLOP for CNN-5 and 23 for CNN-1."""
    for name, expected in (("cnn5", 7e9), ("cnn1", 23.4e9)):
        model = build_model(name, 10, (3, 32, 32)).state_dict()
        assert low_rank.flops(dict(model)) == pytest.approx(expected, rel=0.02)


def test_keeping_all_energy_is_no_compression(tmp_path: Path) -> None:
    runs = []
    for out, options in (
        ("all", {"method__energy_start": 1.0, "method__energy_end": 1.0}),
        ("off", {"method__compression": False}),
    ):
        config = small("fedkd", train__participation=0.5, train__rounds=3, **options)
        runs.append(Federation(config, out=tmp_path / out).run())
    for name in runs[0].manifest.clients:
        torch.testing.assert_close(
            dict(runs[0].model(name).state_dict()),
            dict(runs[1].model(name).state_dict()),
            rtol=1e-3,
            atol=1e-5,
        )
    assert runs[0].summary["floats_up"] == runs[1].summary["floats_up"]


def test_the_energy_schedule_does_not_follow_an_extension(tmp_path: Path) -> None:
    config = FedKDConfig(schedule_rounds=4)
    assert [energy_at(t, config) for t in (1, 2, 4, 9)] == pytest.approx(
        [0.9575, 0.965, 0.98, 0.98]
    )
    run = Federation(small("fedkd", train__rounds=1), out=tmp_path / "run").run()
    assert hyper_parameters(run.config, FedKDConfig).schedule_rounds == 1
    extended = Federation.resume(tmp_path / "run", rounds=2)
    assert hyper_parameters(extended.config, FedKDConfig).schedule_rounds == 1


def test_all_copies_of_the_mentee_stay_the_same(tmp_path: Path) -> None:
    run = Federation(small("fedkd", train__rounds=3), out=tmp_path / "run").run()
    copies = []
    for name in run.manifest.clients:
        state = run.store.clients.load(run.manifest.run, name, 3).state
        copies.append(Payload({k: v for k, v in state.items() if "kept.mentee" in k}).digest())
    assert len(set(copies)) == 1
    downs = {row["round"]: row["floats_down"] for row in run.clients}
    assert downs[1] == 670_058
    assert downs[3] < 0.5 * 670_058


# --- FD and FedProto ---


def table(rows: dict[int, list[float]], name: str, classes: int = 3) -> LabelTable:
    stacked = torch.tensor(list(rows.values())) if rows else torch.zeros(0, classes)
    return LabelTable(Payload({name: stacked}, {"labels": list(rows)}), name, classes)


def test_class_means_by_hand() -> None:
    means = ClassMeans(3, 2)
    means.see(torch.tensor([0, 2]), torch.tensor([[9.0, 9.0], [9.0, 9.0]]))
    means.forget()
    means.see(torch.tensor([2, 0, 2]), torch.tensor([[1.0, 2.0], [5.0, 6.0], [3.0, 6.0]]))
    labels, rows = means.rows()
    assert labels == [0, 2]
    assert rows.tolist() == [[5.0, 6.0], [2.0, 4.0]]


def test_fd_loss_by_hand() -> None:
    """Two samples, a target for the first one's label only; the divisor is the batch."""
    logits, batch = torch.zeros(2, 3), Batch(torch.zeros(2), torch.tensor([1, 0]))
    targets = table({1: [0.5, 0.5, 0.0]}, "targets")
    expected = math.log(3) + 2.0 * math.log(3) / 2
    assert distilled_loss(logits, batch, targets, 2.0).item() == pytest.approx(expected)
    assert distilled_loss(logits, batch, table({}, "targets"), 2.0).item() == pytest.approx(
        math.log(3)
    )


def fd_upload(name: str, outputs: dict[int, float]) -> Received:
    card = Card(name, 9, (3, 32, 32), classes=dict.fromkeys(outputs, 3))
    rows = torch.tensor([[value, 1 - value] for value in outputs.values()])
    return Received(card, Payload({"outputs": rows}, {"labels": list(outputs)}))


def test_fd_leaves_out_the_own_report_and_keeps_the_latest() -> None:
    method, ctx = FD(), replace(Simulation(small("fd")).context(2), classes=2)
    a, b, c = fd_upload("a", {0: 0.2, 1: 0.5}), fd_upload("b", {0: 0.6}), fd_upload("c", {0: 0.8})
    state = method.aggregate(State(), [a, b, c], ctx)
    sent = method.download(state, a.card, ctx)
    assert sent.meta["labels"] == [0]  # nobody else reported label 1
    assert sent.tensors["targets"][0].tolist() == pytest.approx([0.7, 0.3])
    # In the next round only b reports label 0: the old reports of it go, label 1's stays.
    state = method.aggregate(state, [fd_upload("b", {0: 0.4})], ctx)
    assert sorted(state.tensors) == ["0/b", "1/a"]
    assert method.download(state, b.card, ctx).meta["labels"] == []
    assert method.download(state, a.card, ctx).tensors["targets"][0][0].item() == pytest.approx(0.4)


def test_fedproto_loss_by_hand() -> None:
    rep = torch.tensor([[1.0, 3.0], [7.0, 7.0]])
    logits, batch = torch.zeros(2, 3), Batch(rep, torch.tensor([2, 0]))
    prototypes = table({2: [0.0, 1.0]}, "prototypes")
    expected = math.log(3) + 4.0 * ((1 + 4) / 2) / 2  # the second sample has no prototype
    assert prototype_loss(rep, logits, batch, prototypes, 4.0).item() == pytest.approx(expected)


def proto_upload(name: str, rows: dict[int, list[float]], counts: list[int]) -> Received:
    card = Card(name, 99, (3, 32, 32), classes=dict(zip(rows, counts, strict=True)), width=2)
    meta: dict[str, Value] = {"labels": list(rows), "counts": counts}
    return Received(card, Payload({"prototypes": torch.tensor(list(rows.values()))}, meta))


def test_prototypes_are_weighted_by_counts_and_absent_ones_stay() -> None:
    ctx = Simulation(small("fedproto")).context(1)
    uploads = [
        proto_upload("a", {0: [0.0, 4.0], 1: [1.0, 1.0]}, [1, 7]),
        proto_upload("b", {0: [4.0, 0.0]}, [3]),
    ]
    method = FedProto()
    state = method.aggregate(method.start([uploads[0].card], ctx), uploads, ctx)
    assert state.meta["labels"] == [0, 1]
    assert state.tensors["prototypes"].tolist() == [[3.0, 1.0], [1.0, 1.0]]
    later = method.aggregate(state, [proto_upload("b", {0: [8.0, 8.0]}, [3])], ctx)
    assert later.tensors["prototypes"].tolist() == [[8.0, 8.0], [1.0, 1.0]]
    plain = FedProto(averaging="uniform")
    state = plain.aggregate(plain.start([uploads[0].card], ctx), uploads, ctx)
    assert state.tensors["prototypes"][0].tolist() == [2.0, 2.0]


def test_the_nearest_prototype_among_those_allowed() -> None:
    class Same(nn.Module):
        """Its representation is its input."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(x)
            return logits

    prototypes = table({0: [0.0, 0.0], 1: [1.0, 1.0], 2: [5.0, 5.0]}, "prototypes")
    x = torch.tensor([[0.9, 0.9], [4.0, 4.0]])
    assert NearestPrototype(Same(), prototypes, [0, 1, 2], 3)(x).argmax(1).tolist() == [1, 2]
    assert NearestPrototype(Same(), prototypes, [0, 2], 3)(x).argmax(1).tolist() == [0, 2]


@pytest.mark.parametrize("inference", ["nearest_own", "nearest_known"])
def test_inference_by_prototypes(inference: str, tmp_path: Path) -> None:
    config = small("fedproto", method__inference=inference)
    run = Federation(config, out=tmp_path / "run").run()
    simulation = Simulation(config)
    model = run.model("client-0000")
    assert isinstance(model, NearestPrototype)
    client: Client = simulation.population.client("client-0000")
    assert client.score(model) == run.manifest.clients["client-0000"].scores
    assert len(model.labels) == (3 if inference == "nearest_own" else 10)


def test_without_own_prototypes_the_head_predicts() -> None:
    """The full table is there from round 1 on, also for whom nobody has reported a class."""
    method = FedProto(inference="nearest_own", table="full")
    simulation = Simulation(small(method))
    client = simulation.population.client("client-0000")
    foreign = min(set(range(10)) - set(client.train.labels.tolist()))
    width = simulation.population.card("client-0000", {"width"}).width or 0
    download = Payload({"prototypes": torch.zeros(1, width)}, {"labels": [foreign]})
    assert method.personal(client, download, simulation.context(1)) is client.model


def test_statistics_in_the_last_epoch_cost_no_extra_pass(tmp_path: Path) -> None:
    flops = {}
    for method in ("fd", "fedproto"):
        for statistics in ("last_epoch", "pass"):
            config = small(method, method__statistics=statistics, train__rounds=1)
            run = Federation(config, out=tmp_path / method / statistics).run()
            flops[method, statistics] = run.summary["flops"]
    alone = Federation(small("standalone", train__rounds=1), out=tmp_path / "alone").run()
    for method in ("fd", "fedproto"):
        assert flops[method, "last_epoch"] == alone.summary["flops"]
        assert flops[method, "pass"] == pytest.approx(1.37 * alone.summary["flops"], rel=0.01)


# --- LG-FedAvg and checks ---


def test_fedkd_is_charged_for_what_its_next_download_would_be(tmp_path: Path) -> None:
    """Who took part in the round is sent an update next, not the whole mentee again."""
    config = small("fedkd", models__pool=["cnn5"], evaluate__after_aggregation=True)
    run = Federation(config, out=tmp_path / "run").run()
    first, second = run.rounds
    assert first["floats_evaluation"] == second["floats_down"] < first["floats_down"]


def test_lg_fedavg_after_aggregation_has_one_head(tmp_path: Path) -> None:
    config = small("lg_fedavg", evaluate__after_aggregation=True)
    run = Federation(config, out=tmp_path / "after").run()
    heads = {
        Payload({k: v for k, v in run.model(name).state_dict().items() if "fc3" in k}).digest()
        for name in run.manifest.clients
    }
    assert len(heads) == 1
    local = Federation(small("lg_fedavg"), out=tmp_path / "local").run()
    assert [row["accuracy"] for row in local.rounds] == [
        row["accuracy_local"] for row in run.rounds
    ]
    assert run.rounds[-1]["floats_evaluation"] == 4 * 5010


@pytest.mark.parametrize("method", ["lg_fedavg", "fedproto", "fedssa", "fedgh", "fedre", "fedtgp"])
def test_heads_of_different_width_are_refused(method: str) -> None:
    cards = [Card("a", 3, (3, 32, 32), width=500), Card("b", 3, (3, 32, 32), width=64)]
    problems = METHODS[method]().check(cards, Simulation(small()).context(0))
    line = in_one_line(problems)
    assert line.startswith("b: its representation has 64 numbers, that of a 500 (")
    assert "give all models a last layer with 500 inputs" in line
    assert not check_widths(cards[:1], "")


@pytest.mark.parametrize("method", ["fml", "fedkd", "fedmrl"])
def test_a_shared_model_takes_one_shape(method: str) -> None:
    cards = [Card("a", 3, (3, 32, 32), width=500), Card("b", 3, (3, 28, 28), width=500)]
    (problem,) = METHODS[method]().check(cards, Simulation(small()).context(0))
    assert "its inputs are [3, 28, 28], those of a are [3, 32, 32]" in problem.what


def test_no_method_starts_with_clients_it_cannot_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Standalone, "check", lambda *_: [Problem("a", "too small", "grow")] * 5)
    with pytest.raises(MethodError, match=r"^a: too small; .*; and 2 more \(grow\)$"):
        Federation(small("standalone"), out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


# --- the paper's scenarios ---


@pytest.mark.parametrize(
    ("data", "own", "clients", "participation"),
    [
        ("cifar100", 10, 5, 1.0),
        pytest.param("cifar100", 10, 10, 1.0, marks=pytest.mark.repeat),
        pytest.param("cifar100", 10, 50, 0.2, marks=pytest.mark.repeat),
        pytest.param("cifar100", 10, 100, 0.1, marks=pytest.mark.repeat),
        pytest.param("cifar10", 2, 10, 1.0, marks=pytest.mark.repeat),
        pytest.param("cifar10", 2, 50, 0.2, marks=pytest.mark.repeat),
        pytest.param("cifar10", 2, 100, 0.1, marks=pytest.mark.repeat),
    ],
)
def test_the_papers_scenarios_stay_finite(
    data: str, own: int, clients: int, participation: float, cifar: Path, tmp_path: Path
) -> None:
    """Two rounds of every method on real images."""
    for method in METHODS:
        config = small(
            method,
            data__source=data,
            data__dir=str(cifar),
            data__limit=max(250, 10 * clients),
            partition__clients=clients,
            partition__classes_per_client=own,
            models__pool=["cnn5"] if method == "fedavg" else ["cnn5", "cnn4"],
            train__participation=participation,
            train__batch_size=64,
        )
        run = Federation(config, out=tmp_path / method).run()
        assert not run.summary["failed_clients"]
        assert not run.summary["rejected_uploads"]
        assert all(math.isfinite(row["loss"]) for row in run.rounds)


def test_fedkd_survives_interruption(tmp_path: Path) -> None:
    """The method with the most private state: W_h and the copy of the mentee."""
    config = small("fedkd", train__rounds=3, train__participation=0.75, train__optimiser="kept")
    straight = result(Federation(config, out=tmp_path / "straight").run())
    Federation(small("fedkd", train__rounds=1, train__participation=0.75, train__optimiser="kept",
                     method__schedule_rounds=3), out=tmp_path / "run").run()  # fmt: skip
    resumed = Federation.resume(tmp_path / "run", rounds=3).run()
    assert result(resumed) == straight


def test_soft_cross_entropy_matches_torch() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    rows = {y: torch.randn(3).softmax(0).tolist() for y in range(3)}
    soft = torch.tensor([rows[int(y)] for y in labels])
    expected = F.cross_entropy(logits, labels) + 0.3 * F.cross_entropy(logits, soft)
    found = distilled_loss(logits, Batch(logits, labels), table(rows, "targets"), 0.3)
    torch.testing.assert_close(found, expected)


def test_fedkd_sends_the_whole_mentee_to_whoever_missed_a_round() -> None:
    simulation = Simulation(small("fedkd"))
    method, ctx = simulation.method, simulation.context(4)
    assert isinstance(method, FedKD)
    full = {"full/w": torch.zeros(4, 4)}
    state = State({**full, "update/w/factors": torch.zeros(1, 9)}, {"round": 3})
    card = Card("a", 3, (3, 32, 32))
    assert method.download(state, replace(card, accepted=3), ctx).floats == 9
    for accepted in (0, 1, 2):
        assert method.download(state, replace(card, accepted=accepted), ctx).floats == 16
