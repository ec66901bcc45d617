"""What the measurements say about each step of the proofs of Lemma 1 and Theorem 1."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from pfedes.reproduction.theory.bounds import (
    READINGS,
    Measurements,
    Point,
    extractor_shifts,
    gradient_mean,
    lemma,
    noise_floors,
    step_a,
    step_d,
    steps_together,
    theorem,
)
from pfedes.results.table import Table


def tables(measurements: Sequence[Measurements]) -> dict[str, Table]:
    """`constants`: what was estimated of each client. `proof`: its steps and what came of them."""
    return {"constants": _constants(measurements), "proof": _proof(measurements)}


def findings(measurements: Sequence[Measurements]) -> list[str]:
    """The proof's steps in sentences, each with what was measured."""
    return [
        f"{step}: {verdict}. {reason} Measured: {measured}."
        for step, verdict, reason, measured in _steps(measurements)
    ]


def _constants(measurements: Sequence[Measurements]) -> Table:
    rows = []
    for measured in measurements:
        floors = noise_floors(measured)
        numbers = [
            max(measured.secants, default=0.0),
            max(measured.bends, default=0.0),
            max(curvature.value for curvature in measured.curvatures),
            measured.raw_noise,
            measured.enhanced_noise,
            measured.mixture_noise,
            measured.eta,
            measured.largest_rate,
            floors.written,
            floors.mended,
        ]
        counts = [measured.samples, measured.rounds[0].iterations]
        rows.append(
            [measured.client, measured.architecture, *map(str, counts), *map(_short, numbers)]
        )
    return Table(
        columns=[
            *("client", "model", "n", "E", "L1, secant", "L1, descent", "L1, Hessian"),
            *("sigma2", "delta2", "V", "eta", "largest eta", "least eps, written"),
            "least eps, E steps",
        ],
        rows=rows,
        notes=[
            "L1: the largest on the client's path, by three lower bounds: turn of the gradient "
            "over the way, 2 (L' - L - <g, w' - w>) / ||w' - w||^2, and the Hessian's largest "
            "|eigenvalue|. Bounds take the largest.",
            f"sigma2, delta2, V: the largest variance on the path of the gradient of one batch "
            f"of {_span([m.batch_size for m in measurements])} samples, of the raw loss, the "
            "enhanced loss and the mixture.",
            "largest eta: 2 / (L1 (1 - mu)). least eps: the smallest epsilon for which eta is "
            "admissible, which is also the constant that stays in Theorem 1's bound.",
        ],
    )


def _proof(measurements: Sequence[Measurements]) -> Table:
    return Table(
        columns=["step", "verdict", "measured"],
        rows=[[step, verdict, measured] for step, verdict, _, measured in _steps(measurements)],
        notes=[
            "g, p: gradients of the raw and the enhanced loss over all samples of the client. "
            "sigma2, delta2, V: variances of a batch's gradients of the raw loss, the enhanced "
            "loss and the mixture.",
            "Bounds are for expectations, losses are of one run: a loss above a bound is no "
            "disproof, not even above the one that follows, where only the luck of the batches "
            "can put it. The disproofs are in docs/theory.md.",
        ],
    )


def _steps(measurements: Sequence[Measurements]) -> list[tuple[str, str, str, str]]:
    """Name, verdict, mathematical reason, and what was measured."""
    points = [(point, measured) for measured in measurements for point in measured.points()]

    def share(holds: Callable[[Point, Measurements], bool]) -> str:
        return f"{sum(holds(*pair) for pair in points)} of {len(points)} points"

    curvatures = [(m.curvatures[0].value, m.curvatures[-1].value) for m in measurements]
    noises = [point.raw_noise for point, _ in points]
    mixture = [point.mixture_noise(m.mu) / _sum_of_noise(point) for point, m in points]
    iterations = [work.iterations for m in measurements for work in m.rounds]
    gaps = [
        abs(after.raw_loss_before - before.raw_loss_after)
        for m in measurements
        for before, after in pairwise(m.rounds)
    ]
    last = [(m, theorem(m, len(m.rounds)), gradient_mean(m, len(m.rounds))) for m in measurements]
    floors = [noise_floors(m) for m in measurements]
    shifts = [extractor_shifts(m) for m in measurements]
    return [
        (
            "Assumption 1, smoothness",
            "holds approximately, on the path",
            "A network with ReLU and max pooling has kinks, where its gradient jumps, and its "
            "curvature grows with its weights: no finite L1 serves all w.",
            f"L1 is at least {_span([m.smoothness for m in measurements])}; the Hessian's largest "
            f"eigenvalue was {_span([c[0] for c in curvatures])} before the first round and "
            f"{_span([c[1] for c in curvatures])} before the last",
        ),
        (
            "Assumption 2, unbiased gradients",
            "holds for the first step of an epoch",
            "An epoch deals every sample once, so what is left for a batch depends on those "
            "before it, and the last batch of an epoch is no longer random.",
            f"a round has {_span(iterations)} steps",
        ),
        (
            "Assumption 2, bounded variance",
            "holds on the path",
            "Only a bound for all w would be one; the largest value seen stands for it.",
            f"sigma2 of a batch lies between {_short(min(noises))} and {_short(max(noises))}",
        ),
        (
            "(a) drops eta mu <g, p>",
            "does not follow",
            "That a loss is not negative says nothing of its gradient: the step needs <g, p> >= 0.",
            f"<g, p> < 0 at {share(lambda point, _: not step_a(point))}",
        ),
        (
            "(c) sigma2 + delta2 for the variance of the mixture",
            "follows, with room to spare",
            "By convexity V <= (1 - mu) sigma2 + mu delta2, whatever the covariance.",
            f"V is {_span(mixture)} of sigma2 + delta2",
        ),
        (
            "(d) drops mu p from the norm of (1 - mu) g + mu p",
            "does not follow",
            "It needs 2 (1 - mu) <g, p> + mu ||p||^2 <= 0.",
            f"the norm is larger than what (d) leaves at "
            f"{share(lambda point, m: not step_d(point, m.mu))}",
        ),
        (
            "(a) and (d) at the same point",
            "exclude each other",
            "One needs <g, p> >= 0, the other <g, p> < 0, unless p = 0.",
            f"both hold at {share(lambda point, m: step_a(point) and step_d(point, m.mu))}; with "
            f"that L1, what one gives away makes up for the other at {share(steps_together)}",
        ),
        (
            "Lemma 1, sum over E iterations",
            "a factor E is missing",
            "Every step adds L1 eta^2 V / 2; Lemma 1 has the noise of one step for a round of E.",
            "E V is "
            + _span([m.mended_noise / (m.written_noise or math.inf) for m in measurements])
            + " times sigma2 + delta2",
        ),
        (
            "Lemma 1, the bound",
            "false as stated",
            "The loss of a model that rests where the mixture is least need not fall, however "
            "large the raw gradient.",
            _lemma_counts(measurements),
        ),
        (
            "Theorem 1, sum over rounds",
            "follows, for the raw loss",
            "CE(F(x)) does not depend on the extractor, and w rests between a client's rounds. "
            "For the complete loss each new extractor adds a term that the proof lacks.",
            f"between rounds the raw loss changed by at most {_short(max(gaps, default=0.0))}; "
            "new extractors changed the complete loss by "
            f"{_span([sum(map(abs, s)) for s in shifts])} in all per client",
        ),
        (
            "Theorem 1, the bound",
            "false as stated",
            "It inherits (a), (d) and the missing E; SGD on the mixture finds where m = 0, not "
            "where g = 0.",
            "the mean of a round's summed squared gradients is "
            + _span([mean for _, _, mean in last])
            + ", the bound "
            + ", ".join(
                f"{_span([getattr(b, key) for _, b, _ in last])} {name}"
                for key, name in READINGS.items()
            ),
        ),
        (
            "Theorem 1, O(1/T)",
            "not at a fixed learning rate",
            "The bound is O(1/T) plus a constant. Only a learning rate that falls with T makes the "
            "constant fall, and then the rate is O(1/sqrt(T)).",
            f"the constant is {_span([f.written for f in floors])} as written and "
            f"{_span([f.mended for f in floors])} with the noise of E steps, "
            f"{_span([f.written / mean for f, (_, _, mean) in zip(floors, last, strict=True)])} "
            "times the measured mean already as written",
        ),
        (
            "Theorem 1, the learning rate",
            "necessary, not sufficient",
            "It makes the constant smaller than epsilon; T must be large enough as well, which "
            "the theorem does not say.",
            f"eta is below the largest for {sum(m.eta < m.largest_rate for m in measurements)} of "
            f"{len(measurements)} clients, eta <= 1/L1 for "
            f"{sum(m.eta * m.smoothness <= 1 for m in measurements)}; eta is admissible "
            + _admissible([f.written for f in floors]),
        ),
    ]


def _lemma_counts(measurements: Sequence[Measurements]) -> str:
    rounds = [(work, lemma(m, work)) for m in measurements for work in m.rounds]
    counts = [
        f"{sum(work.raw_loss_after > getattr(bounds, key) for work, bounds in rounds)} {name}"
        for key, name in READINGS.items()
    ]
    return f"of {len(rounds)} losses after a round, above the bound: {', '.join(counts)}"


def _sum_of_noise(point: Point) -> float:
    return (point.raw_noise + point.enhanced_noise) or math.inf  # one batch has no noise


def _short(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.3g}"


def _span(values: Sequence[float]) -> str:
    """From the least to the greatest, or the one value that all have."""
    least, most = (
        "infinity" if math.isinf(value) else _short(value) for value in (min(values), max(values))
    )
    return least if least == most else f"{least} to {most}"


def _admissible(floors: Sequence[float]) -> str:
    """For which epsilon a learning rate is admissible."""
    known = [floor for floor in floors if math.isfinite(floor)]
    parts = [f"for epsilon above {_span(known)}"] if known else []
    if len(known) < len(floors):
        parts.append(f"for no epsilon with {len(floors) - len(known)} of {len(floors)} clients")
    return " and ".join(parts)
