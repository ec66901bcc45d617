"""Figures of Lemma 1, Theorem 1 and the admissible learning rate beside what was measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pfedes.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE
from pfedes.reproduction.theory.bounds import (
    READINGS,
    Measurements,
    admissible_rate,
    gradient_mean,
    lemma,
    smallest_epsilon,
    theorem,
    theorem_ahead,
)

LINES: Mapping[str, Mapping[str, Any]] = {
    "written": {"color": ORANGE, "linestyle": "--"},
    "mended": {"color": GREEN, "linestyle": "-."},
    "complete": {"color": PURPLE, "linestyle": (0, (4, 1, 1, 1, 1, 1))},
}
"""How the three readings of a bound are drawn."""


def figures(measurements: Sequence[Measurements]) -> dict[str, Figure]:
    """`lemma`, `gradients` and `learning_rate`, with a panel for each client."""
    return {
        "lemma": _panels(measurements, _draw_lemma),
        "gradients": _panels(measurements, _draw_gradients),
        "learning_rate": _panels(measurements, _draw_rates),
    }


def _panels(
    measurements: Sequence[Measurements], draw: Callable[[Axes, Measurements], None]
) -> Figure:
    """A panel below the other for each client, with one legend above."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.8 + 2.5 * len(measurements)))
        panels = figure.subplots(len(measurements), squeeze=False)[:, 0]
        for axes, measured in zip(panels, measurements, strict=True):
            draw(axes, measured)
            axes.set_title(f"{measured.client}, {measured.architecture}", fontsize=10, loc="left")
        lines = {line.get_label(): line for axes in panels for line in axes.lines}
        shown = [line for label, line in lines.items() if not label.startswith("_")]
        figure.legend(handles=shown, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _draw_lemma(axes: Axes, measured: Measurements) -> None:
    rounds = [work.round for work in measured.rounds]
    losses = [work.raw_loss_after for work in measured.rounds]
    bounds = [lemma(measured, work) for work in measured.rounds]
    before = measured.rounds[0].raw_loss_before
    axes.plot(
        [rounds[0] - 1, *rounds], [before, *losses],
        color=BLUE, marker="o", markersize=3, label="measured loss after the round",
    )  # fmt: skip
    for key, name in READINGS.items():
        values = [getattr(bound, key) for bound in bounds]
        axes.plot(rounds, values, label=f"Lemma 1, {name}", **LINES[key])
    above = [i for i, loss in enumerate(losses) if loss > bounds[i].written]
    axes.plot(
        [rounds[i] for i in above], [losses[i] for i in above],
        color="black", linestyle="none", marker="x", label="above Lemma 1 as written",
    )  # fmt: skip
    axes.set(xlabel="round", ylabel="loss", xlim=(rounds[0] - 1.5, rounds[-1] + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_gradients(axes: Axes, measured: Measurements) -> None:
    numbers = range(1, len(measured.rounds) + 1)
    ahead = np.geomspace(1, 100 * len(numbers), 100)
    axes.plot(
        numbers, [gradient_mean(measured, rounds) for rounds in numbers],
        color=BLUE, marker="o", markersize=3,
        label=r"measured $\Sigma_e\|\nabla L\|^2$, mean of rounds",
    )  # fmt: skip
    for key, noise in (("written", measured.written_noise), ("mended", measured.mended_noise)):
        name, style = READINGS[key], LINES[key]
        floor = smallest_epsilon(measured, noise)
        if floor < math.inf:
            values = [theorem_ahead(measured, noise, rounds) for rounds in ahead]
            axes.plot(ahead, values, label=f"Theorem 1, {name}", **style)
        if 0 < floor < math.inf:
            axes.axhline(floor, color=style["color"], linestyle=":", linewidth=1)
            above = noise == max(measured.written_noise, measured.mended_noise)
            axes.annotate(
                f"stays: {floor:.3g}", (ahead[-1], floor), (0, 3 if above else -3), fontsize=8,
                textcoords="offset points", ha="right", va="bottom" if above else "top",
                color=style["color"],
            )  # fmt: skip
    complete = [theorem(measured, rounds).complete for rounds in numbers]
    axes.plot(numbers, complete, label=f"Theorem 1, {READINGS['complete']}", **LINES["complete"])
    if measured.decrease > 0:
        falling = [theorem_ahead(measured, 0, rounds) for rounds in ahead]
        axes.plot(ahead, falling, color=GREY, linewidth=1, label="O(1/T) alone")
    axes.set(xlabel="rounds T", ylabel="squared gradient norm", xscale="log", yscale="log")


def _draw_rates(axes: Axes, measured: Measurements) -> None:
    floors = [measured.written_noise, measured.mended_noise]
    ends = [smallest_epsilon(measured, noise) for noise in floors]
    middle = [end for end in ends if 0 < end < math.inf] or [1.0]
    epsilons = np.geomspace(min(middle) / 1000, max(middle) * 100, 200)
    for key, noise, end in zip(("written", "mended"), floors, ends, strict=True):
        name, style = READINGS[key], LINES[key]
        rates = [admissible_rate(measured, noise, epsilon) for epsilon in epsilons]
        axes.plot(epsilons, rates, label=f"largest admissible, {name}", **style)
        if 0 < end < math.inf:
            axes.plot([end], [measured.eta], marker="o", color=style["color"], linestyle="none")
            drop = -8 if end == max(ends) else -20  # one below the other
            axes.annotate(
                rf"$\epsilon$ = {end:.3g}", (end, measured.eta), (6, drop), fontsize=8,
                textcoords="offset points", va="top", color=style["color"],
            )  # fmt: skip
    axes.axhline(measured.eta, color=BLUE, label=rf"the run's $\eta$ = {measured.eta:g}")
    axes.axhline(
        measured.largest_rate, color=GREY, linestyle=":", label=r"$2/(L_1\tilde\mu)$, never more"
    )
    axes.set(xlabel=r"$\epsilon$", ylabel=r"learning rate $\eta$", xscale="log", yscale="log")
