"""The theory's quantities against cases that can be computed by hand, and on a real run."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes import Federation, Run, open_run
from pfedes.errors import ConfigError, DamageError, ModelError, StoreError
from pfedes.population.simulation import Simulation
from pfedes.reproduction.scale import LAPTOP, SMOKE
from pfedes.reproduction.theory import gradients as theory_gradients
from pfedes.reproduction.theory.bounds import (
    Curvature,
    LocalWork,
    Measurements,
    Point,
    admissible_rate,
    extractor_shifts,
    gradient_mean,
    lemma,
    noise_floors,
    smallest_epsilon,
    step_a,
    step_d,
    steps_together,
    theorem,
    theorem_ahead,
)
from pfedes.reproduction.theory.experiment import cell
from pfedes.reproduction.theory.figures import figures
from pfedes.reproduction.theory.gradients import (
    BatchView,
    gradients,
    largest_curvature,
    mean_losses,
)
from pfedes.reproduction.theory.measuring import PLAIN_SGD, _check_model, _spread, measure
from pfedes.reproduction.theory.tables import findings, tables
from running import small

PLAIN = {key.replace(".", "__"): value for key, value in PLAIN_SGD.items()}


def half_square(predictions: Tensor, labels: Tensor) -> Tensor:
    return ((predictions - labels) ** 2).sum(1).mean() / 2


def linear(*weights: float) -> nn.Linear:
    model = nn.Linear(len(weights), 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    return model


def view(raw: Sequence[Sequence[float]], enhanced: Sequence[Sequence[float]]) -> BatchView:
    x, xh = (torch.tensor(rows, dtype=torch.float64) for rows in (raw, enhanced))
    return BatchView(x, xh, torch.zeros(len(x), 1, dtype=torch.float64))


def point(iteration: int = 0, **changes: float) -> Point:
    zero = dict.fromkeys(("raw_loss", "enhanced_loss", "raw_square", "enhanced_square"), 0.0)
    noise = dict.fromkeys(("inner", "raw_noise", "enhanced_noise", "shared_noise"), 0.0)
    return Point(iteration=iteration, **{**zero, **noise, **changes})


def work(points: Sequence[Point], after: float, *, round: int = 1, **changes: Any) -> LocalWork:
    fields = {"iterations": len(points), "enhanced_loss_after": 0.0, "replay_distance": 0.0}
    return LocalWork(
        round=round, points=tuple(points), raw_loss_after=after, **{**fields, **changes}
    )


def measured(
    rounds: Sequence[LocalWork], *, mu: float = 0.1, eta: float = 0.1, smoothness: float = 1.0
) -> Measurements:
    return Measurements(
        client="client-0000",
        architecture="cnn5",
        samples=100,
        batch_size=16,
        mu=mu,
        eta=eta,
        rounds=tuple(rounds),
        secants=(0.5 * smoothness,),
        bends=(-1.0,),
        curvatures=(Curvature(round=1, value=smoothness),),
    )


def test_gradients_and_their_noise_by_hand() -> None:
    # A sample's loss is (w x)^2 / 2 and its gradient w x^2. With w = 2 the raw batches have the
    # gradients 2 and 8, all three samples 4; the enhanced ones have 8 and 2, all three 6.
    views = [view([[1], [1]], [[2], [2]]), view([[2]], [[1]])]
    here = gradients(linear(2), views, half_square).point(3)
    assert here.model_dump() == pytest.approx(
        {
            "iteration": 3,
            "raw_loss": 4,
            "enhanced_loss": 6,
            "raw_square": 16,
            "enhanced_square": 36,
            "inner": 24,
            "raw_noise": 10,
            "enhanced_noise": 10,
            "shared_noise": -10,
        }
    )
    # Half and half, both batches have the gradient 5: covariance counts.
    assert here.mixture_square(0.5) == pytest.approx(25)
    assert here.mixture_noise(0.5) == pytest.approx(0)
    assert here.progress(0.5) == pytest.approx(4 * 5)
    assert here.gap_square == pytest.approx((6 - 4) ** 2)
    assert mean_losses(linear(2), views, half_square) == pytest.approx((4, 6))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_curvature_in_size_whatever_its_sign(sign: int) -> None:
    views = [view([[3, 0]], [[0, 0]]), view([[0, 1]], [[0, 0]])]  # Hessian diag(9, 1) / 2
    model = linear(0.3, 0.7)

    def loss(predictions: Tensor, labels: Tensor) -> Tensor:
        return sign * half_square(predictions, labels)

    assert largest_curvature(model, views, loss, tolerance=1e-9) == pytest.approx(4.5)
    assert 0 < largest_curvature(model, views, loss, iterations=1) <= 4.5


def test_the_curvature_of_a_plane_is_zero() -> None:
    plane = [view([[1, 1]], [[1, 1]])]
    assert largest_curvature(linear(1, 1), plane, lambda p, _: (0 * p**2).sum()) == 0


def test_a_parabola_shows_its_curvature_on_the_way() -> None:
    views, path = [view([[2]], [[1]])], theory_gradients.Trajectory()  # L = 4 w^2 / 2
    for weight in (3, 2, 2, 0.5):
        model = linear(weight)
        path.visit(model, gradients(model, views, half_square))
    assert path.secants == pytest.approx([4, 4])  # where nothing moved there is nothing to see
    assert path.bends == pytest.approx([4, 4], abs=1e-5)
    assert max(path.bends) <= 4  # never more than there is, whatever float32 rounds


def test_lemma_and_theorem_by_hand() -> None:
    here = point(raw_loss=3, raw_square=4, enhanced_square=1, inner=1, raw_noise=2,
                 enhanced_noise=1, shared_noise=1)  # fmt: skip
    one = work([here], 2.5, iterations=5)  # five iterations, one of which was measured
    m = measured([one, one], mu=0.5, eta=0.1, smoothness=2)
    assert m.decrease == pytest.approx(0.05 - 0.0025)
    assert m.mixture_noise == pytest.approx(0.5 + 0.25 + 0.5)
    assert (m.written_noise, m.mended_noise) == pytest.approx((3, 6.25))
    bounds = lemma(m, one)
    assert bounds.written == pytest.approx(3 - 0.0475 * 20 + 0.01 * 3)
    assert bounds.mended == pytest.approx(3 - 0.0475 * 20 + 0.01 * 6.25)
    # <g, m> = 2.5 and ||m||^2 = 1 + 0.5 + 0.25
    assert bounds.complete == pytest.approx(3 - 0.1 * 5 * 2.5 + 0.01 * 5 * (1.75 + 1.25))

    assert gradient_mean(m, 2) == pytest.approx(20)
    limits, floors = theorem(m, 2), noise_floors(m)
    assert floors.written == pytest.approx(0.03 / 0.0475)
    assert limits.written == pytest.approx(0.25 / 0.0475 + 0.03 / 0.0475)
    assert limits.mended == pytest.approx(0.25 / 0.0475 + 0.0625 / 0.0475)
    # ||p - g||^2 = 3, five times a round
    assert limits.complete == pytest.approx(2 * 0.25 / 0.1 + 0.25 * 15 + 0.2 * 5 * 1.25)
    assert theorem_ahead(m, 3, 30) == pytest.approx(3 / 30 / 0.0475 + floors.written)


def test_the_admissible_rate_meets_the_smallest_epsilon_at_the_runs_own() -> None:
    m = measured([work([point(raw_noise=2)], 0)], mu=0.2, eta=0.1, smoothness=3)
    least = smallest_epsilon(m, 2)
    assert least == pytest.approx(0.1 * 3 * 2 / (0.8 * (2 - 3 * 0.1 * 0.8)))
    assert admissible_rate(m, 2, least) == pytest.approx(m.eta)
    assert admissible_rate(m, 2, 1e12) == pytest.approx(m.largest_rate) == 2 / (3 * 0.8)


def test_beyond_the_largest_rate_the_theorem_says_nothing() -> None:
    m = measured([work([point(raw_square=1, raw_noise=2)], 0)], eta=3.0)
    assert m.eta > m.largest_rate
    assert theorem(m, 1).written == theorem(m, 1).mended == math.inf
    assert math.isfinite(theorem(m, 1).complete)
    assert "eta is below the largest for 0 of 1 clients" in findings([m])[-1]
    assert tables([m])["constants"].rows[0][-1] == "none"
    for figure in figures([m]).values():
        figure.savefig(Path("figure.png"), dpi=50)


@pytest.mark.parametrize("mu", [0.1, 0.3, 0.5])
def test_a_model_at_rest_disproves_lemma_and_theorem(mu: float) -> None:
    # Raw loss (w - 1)^2 / 2, enhanced loss (w + 1)^2 / 2, no noise, L1 = 1. SGD on the mixture
    # rests at w = 1 - 2 mu, where the raw gradient is -2 mu.
    g, p = -2 * mu, 2 - 2 * mu
    here = point(raw_loss=g**2 / 2, raw_square=g**2, enhanced_square=p**2, inner=g * p)
    rounds = [work([here] * 4, g**2 / 2, round=t) for t in (1, 2)]
    m = measured(rounds, mu=mu)
    assert lemma(m, rounds[0]).written < rounds[0].raw_loss_after - 0.1 * mu**2
    assert theorem(m, 2).written == theorem(m, 2).mended == 0 < gradient_mean(m, 2)
    # With every term kept both hold, and could not be sharper.
    assert lemma(m, rounds[0]).complete == pytest.approx(rounds[0].raw_loss_after)
    assert theorem(m, 2).complete == pytest.approx(gradient_mean(m, 2))
    assert "above the bound: 2 as written, 2 with the noise" in "\n".join(findings([m]))
    for figure in figures([m]).values():  # a noise of 0 has no place on a logarithmic axis
        figure.savefig(Path("figure.png"), dpi=50)


def test_noise_adds_up_over_iterations() -> None:
    # Raw = enhanced loss = w^2 / 2 from its minimum on; a batch's gradient has variance 1.
    eta, E = 0.05, 10
    squares = [0.0]
    for _ in range(E):
        squares.append((1 - eta) ** 2 * squares[-1] + eta**2)
    points = [
        point(raw_loss=s / 2, raw_square=s, enhanced_square=s, inner=s, raw_noise=1,
              enhanced_noise=1, shared_noise=1)
        for s in squares[:-1]
    ]  # fmt: skip
    one = work(points, squares[-1] / 2)
    bounds = lemma(measured([one], eta=eta), one)
    assert bounds.written < one.raw_loss_after  # E is missing
    assert bounds.mended >= one.raw_loss_after
    assert bounds.complete == pytest.approx(one.raw_loss_after)  # a parabola: equality


def test_no_term_dropped_holds_for_every_order_of_batches_on_average() -> None:
    # Two batches, two steps, four orders; a loss that is not quadratic; L1 <= max x^2 / 4.
    data = [(1.5, -0.5), (-1.0, 2.0)]
    views = [view([[x]], [[xh]]) for x, xh in data]

    def loss(predictions: Tensor, labels: Tensor) -> Tensor:
        return F.softplus(-predictions).mean() + 0 * labels.sum()

    mu, eta = 0.4, 0.8
    losses, bounds = [], []
    for order in np.ndindex(2, 2):
        model = linear(0.2)
        points: list[Point] = []
        for index in order:
            points.append(gradients(model, views, loss).point(len(points)))
            batch = gradients(model, [views[index]], loss).full
            with torch.no_grad():
                model.weight.sub_(eta * ((1 - mu) * batch[0] + mu * batch[1]))
        one = work(points, mean_losses(model, views, loss)[0])
        losses.append(one.raw_loss_after)
        bounds.append(lemma(measured([one], mu=mu, eta=eta, smoothness=1.5**2 / 4), one).complete)
    assert np.mean(losses) <= np.mean(bounds)
    assert max(losses) > min(bounds)  # of expectations, not of every single path


def test_steps_a_and_d_exclude_each_other() -> None:
    rng = np.random.default_rng(0)
    together = 0
    for _ in range(1000):
        g, p = rng.normal(size=(2, 3)) * rng.choice([0.1, 1, 10], size=(2, 1))
        here = point(raw_square=g @ g, enhanced_square=p @ p, inner=g @ p)
        assert not (step_a(here) and step_d(here, 0.3))
        together += steps_together(here, measured([work([here], 0)], mu=0.3, eta=0.1))
    assert 0 < together < 1000  # yet one may make up for the other
    assert step_a(point(raw_square=1))  # unless p = 0
    assert step_d(point(raw_square=1), 0.3)


def test_a_new_extractor_changes_the_complete_loss() -> None:
    first = work([point()], 1, enhanced_loss_after=2.0)
    second = work([point(enhanced_loss=2.5)], 1, round=2)
    assert extractor_shifts(measured([first, second], mu=0.2)) == pytest.approx([0.1])


def test_measurements_survive_json() -> None:
    m = measured([work([point(raw_loss=1 / 3)], 0.1)])
    again = Measurements.from_json(json.loads(json.dumps(m.to_json())))
    assert again == m
    with pytest.raises(DamageError, match="no measurements"):
        Measurements.from_json({"client": "client-0000"})


def test_tables_and_findings_say_what_was_measured() -> None:
    with_d = point(raw_loss=1, raw_square=1, enhanced_square=1, inner=-0.5, raw_noise=2)
    with_a = point(raw_loss=1, raw_square=4, enhanced_square=1, inner=2, raw_noise=8)
    low, high = work([with_d], 0.5), work([with_a, with_a], 7.0, round=2)
    m = measured([low, high], eta=0.01, smoothness=20)
    constants, proof = (tables([m])[name] for name in ("constants", "proof"))
    (row,) = constants.rows
    found = dict(zip(constants.columns, row, strict=True))
    assert found["client"] == "client-0000"
    assert (found["L1, secant"], found["L1, Hessian"], found["sigma2"]) == ("10", "20", "8")
    assert found["V"] == f"{0.81 * 8:.3g}"
    assert found["least eps, written"] == f"{noise_floors(m).written:.3g}"
    assert "one batch of 16 samples" in constants.notes[1]

    said = {step: (verdict, numbers) for step, verdict, numbers in proof.rows}
    assert said["(a) drops eta mu <g, p>"] == ("does not follow", "<g, p> < 0 at 1 of 3 points")
    assert "at 2 of 3 points" in said["(d) drops mu p from the norm of (1 - mu) g + mu p"][1]
    assert "both hold at 0 of 3 points" in said["(a) and (d) at the same point"][1]
    assert said["Lemma 1, the bound"][1] == (
        "of 2 losses after a round, above the bound: 1 as written, "
        "1 with the noise of E steps, 1 no term dropped"
    )
    assert "O(1/T) plus a constant" in "\n".join(findings([m]))
    assert len(findings([m])) == len(proof.rows)
    assert findings([m, m]) != findings([m])
    for table in (constants, proof):  # neither Markdown nor LaTeX has a use for these
        cells = [*table.columns, *(cell for row in table.rows for cell in row)]
        assert not {"|", "^", "~"} & set("".join(cells))


def test_figures_show_bounds_beside_what_was_measured() -> None:
    rounds = [
        work([point(raw_loss=2 / t, raw_square=1, raw_noise=1, enhanced_noise=1)], after, round=t)
        for t, after in ((1, 1.0), (2, 3.0), (3, 0.5))
    ]
    m = measured(rounds, eta=0.01)
    drawn = figures([m, m])
    assert list(drawn) == ["lemma", "gradients", "learning_rate"]
    for figure in drawn.values():
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["client-0000, cnn5"] * 2
        assert figure.get_figwidth() <= 6.4
        figure.savefig(Path("figure.png"), dpi=50)
        styles = [line.get_linestyle() for line in figure.axes[0].lines]
        assert len(set(styles)) >= 3

    lines = {line.get_label(): line for line in drawn["lemma"].axes[0].lines}
    assert np.asarray(lines["measured loss after the round"].get_ydata()).tolist() == [2, 1, 3, 0.5]
    written = np.asarray(lines["Lemma 1, as written"].get_ydata())
    assert list(written) == [lemma(m, one).written for one in rounds]
    assert np.asarray(lines["above Lemma 1 as written"].get_xdata()).tolist() == [2]

    axes = drawn["gradients"].axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    bound = next(line for line in axes.lines if line.get_label() == "Theorem 1, as written")
    assert np.asarray(bound.get_ydata())[-1] == pytest.approx(
        theorem_ahead(m, m.written_noise, 300)
    )
    assert np.asarray(bound.get_xdata())[-1] == pytest.approx(300)
    own = drawn["learning_rate"].axes[0].lines
    assert any(str(line.get_label()).endswith("= 0.01") for line in own)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three rounds of plain SGD, all kept; each asks one of two clients for two epochs."""
    settings = {
        "partition__clients": 2,
        "data__limit": 120,
        "models__pool": ["cnn5"],
        "train__rounds": 3,
        "train__participation": 0.5,
        "train__epochs": 2,
        "runtime__keep_rounds": 3,
        **PLAIN,
    }
    return Federation(small(**settings), out=tmp_path_factory.mktemp("runs") / "plain").run()


def test_a_replay_ends_where_the_run_did(plain_run: Run) -> None:
    asked = [row["client"] for row in plain_run.clients]
    assert len(asked) == 3
    name = max(asked, key=asked.count)
    worked = [round for round, client in enumerate(asked, 1) if client == name]
    calls: list[tuple[int, int]] = []
    found = measure(
        plain_run,
        name,
        points=3,
        curvatures=2,
        progress=lambda _, done, total: calls.append((done, total)),
    )
    assert calls == [(done, len(worked)) for done in range(len(worked) + 1)]
    assert [one.round for one in found.rounds] == worked
    assert {one.replay_distance for one in found.rounds} == {0.0}  # to the bit

    samples = Simulation(plain_run.config).population.client(name).train
    E = 2 * math.ceil(len(samples) / 16)
    assert {one.iterations for one in found.rounds} == {E}
    assert [p.iteration for p in found.rounds[0].points] == list(range(0, E, math.ceil(E / 3)))
    assert [c.round for c in found.curvatures] == [worked[0], worked[-1]]
    assert all(c.value > 0 for c in found.curvatures)
    assert len(found.secants) == len(list(found.points()))

    # The last loss, once more from the stored model; and it rests while others work.
    model, everything = plain_run.model(name), samples.batch(slice(None))
    loss = F.cross_entropy(model(everything.x), everything.y)
    assert found.rounds[-1].raw_loss_after == pytest.approx(loss.item(), rel=1e-5)
    ends = [one.raw_loss_after for one in found.rounds[:-1]]
    assert [one.raw_loss_before for one in found.rounds[1:]] == pytest.approx(ends, rel=1e-5)

    square = sum(
        float((part**2).sum()) for part in torch.autograd.grad(loss, list(model.parameters()))
    )
    at_end = gradients(model, [BatchView(everything.x, everything.x, everything.y)]).point(0)
    assert at_end.raw_square == at_end.inner == pytest.approx(square, rel=1e-5)
    assert at_end.raw_noise == pytest.approx(0, abs=1e-9)  # a batch of all samples has none
    assert Measurements.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_what_the_theory_does_not_speak_of_is_refused(plain_run: Run, tmp_path: Path) -> None:
    name = plain_run.clients[0]["client"]  # worked in round 1

    def changed(section: str, **settings: Any) -> Run:
        run = open_run(plain_run.directory)
        other = getattr(run.config, section).model_copy(update=settings)
        run.config = run.config.model_copy(update={section: other})
        return run

    with pytest.raises(ConfigError, match=r"momentum = 0\.9 .*train\.clip = 50\.0"):
        measure(changed("train", momentum=0.9, clip=50.0), name)
    with pytest.raises(ConfigError, match="sharing = 'global'"):
        measure(changed("method", sharing="local"), name)
    with pytest.raises(StoreError, match=r"the replay of round 1 ends .* away"):
        measure(changed("train", lr=0.5), name, points=1, curvatures=1)
    with pytest.raises(StoreError, match="has a changed key that defines the run: seed"):
        measure(changed_seed(plain_run), name)
    with pytest.raises(ConfigError, match="both must be at least 1"):
        measure(plain_run, name, curvatures=0)
    with pytest.raises(StoreError, match="unknown client 'client-000'"):
        measure(plain_run, "client-000")

    forgetful = shutil.copytree(plain_run.directory, tmp_path / "forgetful")
    open_run(forgetful).store.tidy(1)
    with pytest.raises(StoreError, match=r"no longer has round \d.*keep_rounds of at least 3"):
        measure(open_run(forgetful), name)
    for layer in (nn.BatchNorm2d(3), nn.Dropout(0.5)):
        with pytest.raises(ModelError, match="not a mean over samples"):
            _check_model(nn.Sequential(layer), "own")


def changed_seed(run: Run) -> Run:
    other = open_run(run.directory)
    other.config = other.config.model_copy(update={"seed": 1})
    return other


def test_a_scale_is_known_by_its_name() -> None:
    assert cell(replace(SMOKE)) == cell(SMOKE) != cell(LAPTOP)


def test_rounds_are_spread_from_the_first_to_the_last() -> None:
    assert _spread(20, 5) == [0, 5, 10, 14, 19]
    assert _spread(3, 5) == [0, 1, 2]
    assert _spread(4, 1) == [0]
