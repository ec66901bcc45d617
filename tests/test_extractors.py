"""Extractors for images, signals, tables and embeddings, and the user's own."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pfedes import (
    Card,
    Client,
    ConfigError,
    Context,
    DataError,
    Extractor,
    Federation,
    MethodError,
    ModelError,
    Payload,
    PFedES,
    configure,
    open_run,
)
from pfedes.core.augment import Augmentation
from pfedes.core.payload import TensorSpec
from pfedes.core.samples import FloatSamples, Normaliser, Samples, Standardiser
from pfedes.core.shapes import Shape
from pfedes.core.training import Learner, fit, fit_labels, frozen
from pfedes.core.wire import WireSpec, required
from pfedes.methods.base import Received
from pfedes.methods.pfedes import (
    PFedESConfig,
    ShareOfZeros,
    enhanced_once,
    extractor_loss,
    model_loss,
)
from pfedes.models import build_model
from pfedes.models.custom_extractor import examine, own_extractor
from pfedes.models.extractor import extractor_for
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
from pfedes.report.enhanced import enhanced_pairs
from pfedes.report.output import write_results
from pfedes.results.disclosure import _direction
from running import hyper_parameters, small

HERE = "test_extractors"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def context(**chosen: Any) -> Context:
    return Simulation(small(**chosen)).context(1)


def card(name: str, *shape: int) -> Card:
    return Card(name, 10, shape)


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- by the rank of the input ---


@pytest.mark.parametrize(
    ("shape", "width", "parameters"),
    [
        ((3, 32, 32), 8, (3 * 9 * 8 + 8) + (8 * 9 * 3 + 3)),  # 443
        ((1, 16, 20), 8, (1 * 9 * 8 + 8) + (8 * 9 * 1 + 1)),  # 153
        ((3, 500), 8, (3 * 3 * 8 + 8) + (8 * 3 * 3 + 3)),  # 155
        ((12, 7), 4, (12 * 3 * 4 + 4) + (4 * 3 * 12 + 12)),  # 304
        ((30,), 8, (30 * 8 + 8) + (8 * 30 + 30)),  # 518
        ((768,), 8, (768 * 8 + 8) + (8 * 768 + 768)),  # 13,064
    ],
)
def test_parameters_by_hand(shape: Shape, width: int, parameters: int) -> None:
    extractor = extractor_for(shape, width, "none")
    assert sum(p.numel() for p in extractor.parameters()) == parameters


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    width=st.integers(1, 9),
    batch=st.integers(1, 4),
    final=st.sampled_from(["relu", "none", "tanh"]),
)
def test_the_shape_is_preserved(shape: Shape, width: int, batch: int, final: Any) -> None:
    x = torch.randn(batch, *shape)
    before = x.clone()
    assert extractor_for(shape, width, final)(x).shape == x.shape
    assert torch.equal(x, before)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 20), (12,)])
def test_the_built_in_extractors_would_pass_as_custom_ones(shape: Shape) -> None:
    ctx = context()
    examine(lambda: PFedES().extractors.initial(shape, ctx), shape)


@pytest.mark.parametrize("shape", [(), (3, 8, 8, 8), (0,), (3, 0, 5)])
def test_other_shapes_have_none(shape: Shape) -> None:
    with pytest.raises(ModelError, match=r"no extractor for inputs of \[.*\[features\]$"):
        extractor_for(shape, 8, "none")
    (problem,) = PFedES().check([card("odd", *shape)], context())
    assert "there is no extractor" in problem.what


def test_images_have_the_extractor_that_they_had() -> None:
    """Names, order and initial weights are those of two convolutions drawn from the stream."""
    ctx = context()
    with ctx.streams.ambient("init.extractor"):
        plain = {"conv1": nn.Conv2d(3, 8, 3, padding=1), "conv2": nn.Conv2d(8, 3, 3, padding=1)}
    expected: dict[str, Tensor] = {
        f"{n}.{key}": t for n, layer in plain.items() for key, t in layer.named_parameters()
    }
    start = PFedES().start([card("a", 3, 32, 32)], ctx)
    assert same(start.tensors, expected)
    assert list(start.tensors) == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]
    extractor = PFedES().extractors.new((3, 32, 32))
    assert type(extractor) is Extractor
    assert extractor.conv1.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 20), (12,)])
def test_only_images_end_in_a_relu_by_default(shape: Shape) -> None:
    x = torch.randn(50, *shape)
    images = len(shape) == 3
    assert (PFedES().extractors.new(shape)(x) < 0).any().item() is not images
    key = "final_activation" if images else "final_activation_other"
    activation: dict[str, Any] = {key: "tanh"}
    chosen = PFedES(**activation).extractors.new(shape)(100 * x)
    assert chosen.abs().max() <= 1
    assert (chosen < 0).any()


def test_results_of_old_runs_are_recognised() -> None:
    """Their config.toml names the ReLU, and none of the keys that are new."""
    old = {"method.final_activation": "relu", "method.width": 8}
    assert configure(settings=old).result_digest() == configure().result_digest()
    own = configure(settings={"method.extractor": "mine:net"})
    assert own.result_digest() != configure().result_digest()
    other = configure(settings={"method.final_activation_other": "relu"})
    assert other.result_digest() != configure().result_digest()
    shown = configure().to_commented_toml()
    assert 'extractor = "auto"' in shown
    assert "package.module:function, your own extractor" in shown


# --- clients that share one ---


def test_image_sizes_and_lengths_may_differ_and_all_else_is_reported() -> None:
    ctx, method = context(), PFedES()
    images = [card("a", 1, 28, 28), card("b", 3, 32, 32), card("c", 3, 64, 48), card("d", 3, 9, 9),
              card("e", 1, 28, 28), card("f", 3, 100), card("g", 3)]  # fmt: skip
    problems = method.check(images, ctx)
    most = "but those of most clients are images with 3 channels"
    assert [(p.client, p.what) for p in problems] == [
        ("a", f"its inputs are images with 1 channel, {most}"),
        ("e", f"its inputs are images with 1 channel, {most}"),
        ("f", f"its inputs are signals with 3 channels, {most}"),
        ("g", f"its inputs are rows of 3 numbers, {most}"),
    ]
    remedy = "all clients share one extractor: bring all inputs to images with 3 channels"
    assert {p.remedy for p in problems} == {remedy}
    assert method.check([card("a", 2, 10), card("b", 2, 99)], ctx) == []
    (problem,) = method.check([card("a", 7), card("b", 7), card("c", 1)], ctx)
    assert (
        problem.what
        == "its inputs are rows of 1 number, but those of most clients are rows of 7 numbers"
    )
    assert method.check([], ctx) == []


def test_clients_that_share_nothing_need_not_agree() -> None:
    cards = [card("a", 7), card("b", 8)]
    assert PFedES(sharing="local").check(cards, context()) == []


def test_augmentation_is_for_images() -> None:
    ctx = context(train__augment=True)
    first, second = PFedES().check([card("a", 7), card("b", 7)], ctx)
    assert first.what == "train.augment is for images, but its inputs are rows of 7 numbers"
    assert second.client == "b"
    assert PFedES().check([card("a", 3, 8, 8)], ctx) == []
    with pytest.raises(ConfigError, match="augment is for images"):  # whatever the method
        fit_labels(toy((7,)), ctx)


def test_an_activation_for_the_other_kind_is_reported() -> None:
    (problem,) = PFedES(final_activation="tanh").check([card("a", 7)], context())
    assert problem.what == "method.final_activation is not for rows of 7 numbers"
    assert problem.remedy == "set method.final_activation_other instead"
    (problem,) = PFedES(final_activation_other="tanh").check([card("a", 3, 8, 8)], context())
    assert problem.remedy == "set method.final_activation instead"


def test_cnns_are_for_images() -> None:
    with pytest.raises(ModelError, match="a CNN is for images, the inputs are rows of 7 numbers"):
        build_model("cnn1", 10, (7,))


# --- inputs that are ready numbers ---


def test_numbers_are_standardised_channel_by_channel() -> None:
    rows = FloatSamples(
        torch.tensor([[1.0, 10.0], [3.0, 10.0]]), torch.tensor([0, 1]),
        Standardiser.of([2.0, 10.0], [0.5, 0.0]),
    )  # fmt: skip
    assert rows.shape == (2,)
    assert rows.batch(slice(None)).x.tolist() == [[-2.0, 0.0], [2.0, 0.0]]
    signals = FloatSamples(torch.arange(12).view(2, 2, 3), torch.zeros(2).long(),
                           Standardiser.of([0.0, 3.0], [1.0, 2.0]))  # fmt: skip
    assert signals.shape == (2, 3)
    x = signals.batch(torch.tensor([1])).x
    assert x.dtype == torch.float32
    assert x.tolist() == [[[6.0, 7.0, 8.0], [3.0, 3.5, 4.0]]]
    plain = FloatSamples(torch.ones(4, 5), torch.zeros(4).long())
    plain.batch(slice(None)).x.zero_()
    assert torch.equal(plain.inputs, torch.ones(4, 5))
    with pytest.raises(DataError, match=r"have 2 and 2 numbers, inputs of \[5\] need 5 or one"):
        FloatSamples(torch.ones(4, 5), torch.zeros(4).long(), Standardiser.of([0, 0], [1, 1]))


def test_images_may_be_numbers_too() -> None:
    torch.manual_seed(0)
    pixels, labels = torch.randint(0, 256, (6, 12, 10, 3), dtype=torch.uint8), torch.arange(6)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    ours = Samples(pixels, labels, Normaliser.of(mean, std))
    theirs = FloatSamples(pixels.permute(0, 3, 1, 2) / 255, labels, Standardiser.of(mean, std))
    assert ours.shape == theirs.shape == (3, 12, 10)
    for seed in (None, 1):
        batches = []
        for samples in (ours, theirs):
            augment = seed and Augmentation(torch.Generator().manual_seed(seed))
            batches.append(samples.batch(slice(0, 4), augment or None))
        torch.testing.assert_close(batches[0].x, batches[1].x, rtol=1e-5, atol=1e-5)
        assert batches[1].x.is_contiguous(memory_format=torch.channels_last)


# --- a client's round ---


def toy(shape: Shape, name: str = "client-0000", samples: int = 96) -> Client:
    """Two classes that differ in the sign of the first number's mean."""
    torch.manual_seed(len(name) + ord(name[-1]))
    labels = torch.arange(samples) % 2
    inputs = torch.randn(samples, *shape)
    inputs[:, 0] += (4.0 * labels - 2).view(-1, *[1] * (len(shape) - 1))
    numbers = torch.Size(shape).numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(numbers, 16), nn.ReLU(), nn.Linear(16, 2))
    train, val, test = (FloatSamples(inputs[i::3], labels[i::3]) for i in range(3))
    return Client(name, "mine", model, train, val, test)


SHAPES = [(6,), (2, 12), (3, 8, 8)]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_phase_trains_one_and_freezes_the_other(shape: Shape) -> None:
    client, ctx = toy(shape), context()
    extractor = PFedES().extractors.initial(shape, ctx)
    w, theta = copied(client.model.state_dict()), copied(extractor.state_dict())
    with frozen(extractor):
        fit(
            client,
            {"model": Learner(client.model, 0.05)},
            lambda batch: model_loss(client.model, extractor, batch, 0.5),
            epochs=1,
            ctx=ctx,
        )
    assert same(theta, extractor.state_dict())
    assert all(p.grad is None for p in extractor.parameters())
    assert not same(w, client.model.state_dict())

    w = copied(client.model.state_dict())
    for p in client.model.parameters():
        p.grad = None
    with frozen(client.model):
        fit(
            client,
            {"extractor": Learner(extractor, 0.05)},
            lambda batch: extractor_loss(client.model, extractor, batch, ShareOfZeros()),
            epochs=1,
            ctx=ctx,
        )
    assert same(w, client.model.state_dict())
    assert all(p.grad is None for p in client.model.parameters())
    assert all(p.grad is not None and p.grad.any() for p in extractor.parameters())


@pytest.mark.parametrize("extractor", ["auto", f"{HERE}:residual"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rounds_on_toy_data(shape: Shape, extractor: str) -> None:
    chosen: dict[str, Any] = {"train__epochs": 2, "method__extractor_epochs": 2, "train__lr": 0.05}
    simulation = Simulation(small(**chosen, method__extractor=extractor))
    method, ctx = simulation.method, simulation.context(1)
    clients = [toy(shape, f"client-{number}") for number in range(3)]
    cards = [Card(client.name, len(client.train), client.shape) for client in clients]
    assert method.check(cards, ctx) == []
    state = method.start(cards, ctx)
    losses = []
    for round in range(1, 6):
        ctx, uploads, total = simulation.context(round), [], 0.0
        for client, its in zip(clients, cards, strict=True):
            download = method.download(state, its, ctx)
            method.allowed(its, ctx).down.check(download)
            received = copied(download.tensors)
            upload = method.client_round(client, Payload(copied(download.tensors)), ctx)
            assert same(received, download.tensors)
            sent = Payload(copied(upload.tensors), upload.meta)
            method.allowed(its, ctx).up.check(sent)
            assert not same(sent.tensors, received)
            uploads.append(Received(its, sent))
            total += upload.loss
        state = method.aggregate(state, uploads, ctx)
        losses.append(total)
    assert losses[-1] < 0.6 * losses[0]
    assert all(client.score(client.model).accuracy > 0.75 for client in clients)


def test_no_accident_of_batches_reaches_the_enhanced_rows() -> None:
    """Computed once for all epochs or again in each, G(x) is the same."""
    ctx = context(train__epochs=2)
    for shape in SHAPES:
        client = toy(shape)
        extractor = PFedES().extractors.initial(shape, ctx)
        once = enhanced_once(client, extractor, ctx)
        assert once is not None
        assert once.shape == (len(client.train), *shape)
        with torch.no_grad():
            torch.testing.assert_close(once, extractor(client.train.batch(slice(None)).x))


@pytest.mark.parametrize("shape", [(6,), (2, 12)])
def test_flops_by_hand(shape: Shape) -> None:
    """Multiply-adds: phase 1 twice per epoch through F and once through G; phase 2 through both."""
    simulation = Simulation(small(train__epochs=3, method__extractor_epochs=2))
    client, ctx = toy(shape), simulation.context(1)
    numbers = torch.Size(shape).numel()
    client.model = nn.Sequential(nn.Flatten(), nn.Linear(numbers, 2))
    download = Payload(simulation.method.start([card("", *shape)], ctx).tensors)
    simulation.method.client_round(client, download, ctx)
    f = numbers * 2
    layer = 6 * 8 if len(shape) == 1 else 12 * 2 * 3 * 8  # one of G's two equal ones
    phase1 = 3 * 2 * (f + f) + 2 * layer  # outputs and gradients of weights
    phase2 = 2 * ((f + f) + (2 + 2 + 1) * layer)  # no gradient of the first layer's input
    assert client.meter.total == 2 * len(client.train) * (phase1 + phase2)


# --- one's own ---


def residual(shape: Shape) -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.change = nn.Linear(shape[-1], shape[-1])

        def forward(self, x: Tensor) -> Tensor:
            changed: Tensor = x + self.change(x)
            return changed

    return Residual()


class TwoNumbers(nn.Module):
    """What a formula makes of its input and two parameters."""

    def __init__(self, formula: Callable[["TwoNumbers", Tensor], Any]) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.rand(1))
        self.b = nn.Parameter(torch.rand(1))
        self.formula = formula

    def forward(self, x: Tensor) -> Any:
        return self.formula(self, x)


def built(formula: Callable[[TwoNumbers, Tensor], Any]) -> Callable[[Shape], TwoNumbers]:
    """A function that makes such an extractor."""
    return lambda shape: TwoNumbers(formula)


def raising(shape: Shape) -> nn.Module:
    raise RuntimeError(f"no idea\n what to do with {shape}")


def with_constant(shape: Shape) -> nn.Module:
    module = fine(shape)
    module.register_buffer("blur", torch.ones(3), persistent=False)
    return module


def frozen_part(shape: Shape) -> nn.Module:
    module = fine(shape)
    module.b.requires_grad_(False)
    return module


def unseeded(shape: Shape) -> nn.Module:
    module = fine(shape)
    nn.init.uniform_(module.a, generator=torch.Generator().manual_seed(next(COUNT)))
    return module


COUNT = iter(range(1000))
ONE = nn.Sequential(nn.Linear(6, 6))
fine = built(lambda m, x: m.a * x + m.b)
flat = built(lambda m, x: (m.a * x + m.b).mean(-1))
pooled = built(lambda m, x: (m.a * x + m.b).mean(0))
scalar = built(lambda m, x: (m.a * x + m.b).mean())
mixing = built(lambda m, x: m.a * x + m.b * x.mean(0))
tuple_of_two = built(lambda m, x: (m.a * x, m.b))
wide = built(lambda m, x: (m.a * x + m.b).double())
in_place = built(lambda m, x: m.a * x.add_(1) + m.b)
no_number = built(lambda m, x: m.a * x / x.std() + m.b)
detached = built(lambda m, x: (m.a * x + m.b).detach())
unused = built(lambda m, x: m.a * x)
breaking = built(lambda m, x: m.a * x @ x)
seven = 7


def parameterless(shape: Shape) -> nn.Module:
    return nn.Tanh()


def normalising(shape: Shape) -> nn.Module:
    return nn.BatchNorm1d(6)


def always_one(shape: Shape) -> nn.Module:
    return ONE


def no_module(shape: Shape) -> Any:
    return torch.zeros(shape)


def only_rows(shape: Shape) -> nn.Module:
    return nn.Linear(shape[-1], shape[-1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raising", "raises RuntimeError: no idea what to do with (6,)"),
        ("no_module", "returns something of type Tensor, not a torch.nn.Module"),
        ("parameterless", "has no parameters: there is nothing to share"),
        ("normalising", "holds 'running_mean', which is not a parameter: normalise by GroupNorm"),
        ("always_one", "is the same object at every call: make a new one each time"),
        ("unseeded", "has different weights at every call: draw them from torch's own generator"),
        ("tuple_of_two", "returns something of type tuple, not a tensor"),
        ("flat", "does not preserve the shape: [3] for inputs of [3, 6]"),
        ("pooled", "does not keep the batch: [6] for inputs of [3, 6]"),
        ("scalar", "does not keep the batch: [] for inputs of [3, 6]"),
        ("mixing", "gives another output for a sample if others are beside it in the batch"),
        ("wide", "gives numbers of type torch.float64, expected torch.float32"),
        ("in_place", "changes its input"),
        ("no_number", "gives NaN or infinity for inputs of [6]"),
        ("detached", "lets no gradient reach its parameter 'a': it would never learn"),
        ("unused", "lets no gradient reach its parameter 'b'"),
        ("frozen_part", "lets no gradient reach its parameter 'b'"),
        ("breaking", "raises RuntimeError with inputs of [6]: "),
    ],
)
def test_what_a_custom_extractor_may_not_do(name: str, message: str) -> None:
    method = PFedES(extractor=f"{HERE}:{name}")
    (first,) = method.check([card("a", 6), card("b", 6)], context())
    assert first.client == "a and 1 more"
    assert first.what.startswith("the extractor ")
    assert message in first.what
    assert "\n" not in first.what
    assert first.remedy == f"fix {HERE}:{name}"


@pytest.mark.parametrize("name", ["fine", "with_constant", "residual", "only_rows"])
def test_what_a_custom_extractor_may_do(name: str) -> None:
    assert PFedES(extractor=f"{HERE}:{name}").check([card("a", 6)], context()) == []


def test_a_custom_extractor_must_be_the_same_for_all() -> None:
    cards = [card("a", 3, 8, 8), card("b", 3, 8, 9), card("c", 1, 12, 8)]
    (problem,) = PFedES(extractor=f"{HERE}:only_rows").check(cards, context())
    assert problem.client == "b"
    assert (
        problem.what
        == "its inputs are of shape [3, 8, 9], but those of most clients are of shape [3, 8, 8]"
    )
    assert PFedES(extractor=f"{HERE}:fine").check(cards, context()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing_there:net", "method.extractor 'nothing_there:net' cannot be imported: No module"),
        (f"{HERE}:nothing", "cannot be imported: module 'test_extractors' has no attribute"),
        (f"{HERE}:seven", "is something of type int, not a function"),
        ("raising_own_extractor:net", "cannot be imported: not today"),
    ],
)
def test_a_custom_extractor_must_be_there(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_own_extractor.py").write_text("raise RuntimeError('not\\n today')")
    if name.startswith("raising"):
        with pytest.raises(ConfigError, match="No module"):  # to lie here is not enough
            PFedES(extractor=name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as error:
        PFedES(extractor=name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    config = configure(settings={"method.extractor": name})
    assert hyper_parameters(config, PFedESConfig).extractor == name


def test_wrong_keys() -> None:
    for name in ("mine", ":f", "m:", ""):
        with pytest.raises(ConfigError, match=r"method\.extractor = .*: expected 'auto' or"):
            configure(settings={"method.extractor": name})
    own = {"method.extractor": "mine:net", "method.width": 4}
    with pytest.raises(ConfigError, match="method: your own extractor does not use width"):
        configure(settings=own)
    with pytest.raises(ConfigError, match=r"^PFedES: .*does not use final_act\w+: leave it out$"):
        PFedES(extractor="mine:net", final_activation="none")


def test_its_initial_weights_come_from_the_seed() -> None:
    build = own_extractor(f"{HERE}:only_rows")
    method, ctx = PFedES(extractor=f"{HERE}:only_rows"), context()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = method.start([card("a", 6)], ctx).tensors
    method.allowed(card("a", 6), ctx)
    assert torch.equal(torch.get_rng_state(), state)
    with ctx.streams.ambient("init.extractor"):
        assert same(first, build((6,)).state_dict())
    other = method.start([card("a", 6)], context(seed=5)).tensors
    assert not same(first, other)


def test_a_run_with_a_custom_extractor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_mine.py").write_text(
        "from torch import nn\n"
        "def net(shape):\n"
        "    return nn.Sequential(nn.Conv2d(shape[0], 2, 1), nn.Conv2d(2, shape[0], 1))\n"
    )
    own: dict[str, Any] = {"method__extractor": "package_of_mine:net", "runtime__report": True}
    config = small(**own, models__pool=["cnn5"])
    with monkeypatch.context() as here:
        here.syspath_prepend(str(tmp_path))
        run = Federation(config, out=tmp_path / "run").run()
    assert run.summary["floats_up"] == 2 * 4 * (3 * 2 + 2 + 2 * 3 + 3)
    html = (run.directory / "report.html").read_text()
    assert "Enhanced images" in html
    pairs = enhanced_pairs(run)
    assert pairs is not None
    assert pairs.round == 2

    # Elsewhere the package is missing; the run can be read all the same.
    monkeypatch.delitem(sys.modules, "package_of_mine")
    again = open_run(run.directory)
    assert again.summary == run.summary
    write_results(again)
    html = (run.directory / "report.html").read_text()
    assert "cannot be imported" in html
    with pytest.raises(ConfigError, match="cannot be imported"):
        Federation(config, out=tmp_path / "other").run()


def test_nothing_is_begun_with_a_faulty_one(tmp_path: Path) -> None:
    config = small(method__extractor=f"{HERE}:flat")
    with pytest.raises(
        MethodError, match="client-0000 and 3 more: the extractor does not preserve the shape"
    ):
        Federation(config, out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


# --- the report ---


def test_no_enhanced_images_where_inputs_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Federation(small(train__rounds=1, models__pool=["cnn5"]), out=tmp_path / "run").run()
    assert enhanced_pairs(run) is not None
    monkeypatch.setattr(PartitionedPopulation, "pictures", lambda *_: None)
    assert enhanced_pairs(run) is None


@pytest.mark.parametrize(
    ("shape", "alike"),
    [
        ((3, 8, 9), ["image", "images", "channels_last"]),
        ((8, 9), ["signal", "image", "images"]),
        ((9,), []),
    ],
)
def test_what_has_the_form_of_inputs(shape: Shape, alike: list[str]) -> None:
    tensors = {"image": (3, 8, 9), "images": (5, 3, 8, 9), "channels_last": (8, 9, 3),
               "signal": (9, 8), "bias": (9,), "weight": (8, 3, 3)}  # fmt: skip
    spec = WireSpec((required({name: TensorSpec(dims) for name, dims in tensors.items()}),))
    assert sorted(_direction(spec, {}, shape).input_like) == sorted(alike)
