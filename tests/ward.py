"""A ward in which one patient of eleven is ill: its models tend to call everybody well."""

import csv
import random
from pathlib import Path
from typing import Any

from pfedes import Config, configure

NETWORKS = """
from torch import nn

def small(classes, shape):
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, classes))
"""
LEARNING = {"train.rounds": 3, "train.epochs": 4, "train.batch_size": 16, "train.lr": 0.02}
SITES = ("east", "west")


def rows(seed: int = 0, well: int = 200, ill: int = 20, sites: Any = SITES) -> list[dict[str, str]]:
    """Of each site. The ill have a higher temperature, most of them; pulse says nothing."""
    draw = random.Random(seed)
    found = []
    for site in sites:
        for number in range(well + ill):
            is_ill = number >= well
            temperature = draw.gauss(38.0 if is_ill else 37.0, 0.7)
            row = {"site": site, "state": "ill" if is_ill else "well"}
            row |= {"temperature": f"{temperature:.2f}", "pulse": f"{draw.gauss(75, 9):.0f}"}
            found.append(row)
    return found


def ward(place: Path, **settings: Any) -> Config:
    """The ward's configuration, its table and networks written into a directory."""
    place.mkdir(exist_ok=True)
    table = rows()
    with (place / "ward.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    (place / "ward_networks.py").write_text(NETWORKS)
    chosen = {
        "data.source": f"csv:{place / 'ward.csv'}",
        "partition.kind": "natural",
        "table.label": "state",
        "table.site": "site",
        "table.numbers": ["temperature", "pulse"],
        "models.table": [f"{place / 'ward_networks.py'}:small"],
        "method.extractor_epochs": 1,
        "runtime.fleet": "serial",
        "runtime.report": False,
        **LEARNING,
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    return configure(settings=chosen)
