"""How fast pfedes is on this machine: one table for each question, and all of it as JSON.

    python benchmarks/bench.py [SECTION ...] [--json FILE] [--history]

What is compared is measured in one run, in turns, and shown as medians: a busy machine slows all of
it alike. docs/performance.md explains the figures.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster import cluster
from compare import HISTORY
from federation import overhead
from kernels import shares
from methods import rounds_of_methods
from phase1 import passes
from precisions import precisions
from rich.console import Console
from rich.table import Table
from scale import scale
from speed_up import speed_up
from start_up import start_up
from whole_round import versus_naive

from pfedes.store.environment import environment

SECTIONS: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
    "kernels": ("a step at batch 512, one thread, and its share of the machine's peak", shares),
    "methods": ("one client's round, CNN-1, digits, batch 64, one thread", rounds_of_methods),
    "precision": ("a step at batch 64, and a client's round of CIFAR-10, one thread", precisions),
    "phase1": ("one client's round, CNN-1, digits, E = 5, E_fe = 1, one thread", passes),
    "round": ("a round of CIFAR-10, N = 100, C = 10 %, E = E_fe = 5, augmented", versus_naive),
    "workers": ("a second worker, beside a second process of multiplications", speed_up),
    "scale": ("ten clients of CNN-5 asked in each round, of more and more", scale),
    "cluster": ("two nodes over loopback with TLS, beside no cluster", cluster),
    "federation": ("a round of three participants in a real federation", overhead),
    "start": ("until something happens", start_up),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--history", action="store_true", help="keep all figures in benchmarks/history"
    )
    chosen = parser.parse_args()
    for name in chosen.sections:
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}; known: {', '.join(SECTIONS)}")
    console, figures = Console(highlight=False), {}
    for name in chosen.sections or SECTIONS:
        title, measure = SECTIONS[name]
        began = time.perf_counter()
        rows = figures[name] = measure()
        console.print(f"\n{name}: {title} ({time.perf_counter() - began:.0f} s)", style="bold")
        console.print(_table(rows))
    whole = {"environment": environment(), "figures": figures}
    for file in [chosen.json, _place(whole["environment"]) if chosen.history else None]:
        if file is not None:
            file.write_text(json.dumps(whole, indent=2) + "\n")


def _place(about: dict[str, Any]) -> Path:
    """A file of the history: when, what, and on which machine it was measured."""
    HISTORY.mkdir(exist_ok=True)
    when = about["begun"][:16].replace(" ", "-").replace(":", "")
    commit = (about["commit"] or "package")[:8]
    machine = re.sub(r"[^a-z0-9]+", "-", about["processor"].lower()).strip("-")
    return HISTORY / f"{when}-{commit}-{machine}-{about['cores']}-cores.json"


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    return table


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 1000 else f"{value:,}" if (
        isinstance(value, int)
    ) else f"{value:,.0f}" if isinstance(value, float) else str(value)  # fmt: skip


if __name__ == "__main__":
    main()
