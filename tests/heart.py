"""Rows of the form that the four hospitals' heart data has, generated."""

import csv
import random
from pathlib import Path
from typing import Any

from pfedes import Config, configure

HEART = Path(__file__).parents[1] / "examples" / "heart"
COLUMNS = (
    "site", "disease", "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach",
    "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
SITES = {"cleveland": 40, "hungarian": 36, "switzerland": 30, "va": 32}
QUICK = {"train.rounds": 2, "runtime.fleet": "serial", "runtime.report": False}


def rows(seed: int = 0) -> list[dict[str, str]]:
    """Ill patients are older; Switzerland has no chol, Hungary no ca and thal."""
    draw = random.Random(seed)
    found = []
    for site, count in SITES.items():
        for number in range(count):
            ill = number % 2 == 1
            row = {
                "site": site,
                "disease": "yes" if ill else "no",
                "age": str(draw.randint(55, 75) if ill else draw.randint(30, 50)),
                "sex": draw.choice(["0", "1.0"]),
                "cp": str(draw.randint(1, 4)),
                "trestbps": str(draw.randint(100, 180)),
                "chol": "" if site == "switzerland" else str(draw.randint(150, 350)),
                "fbs": draw.choice(["0", "1", ""]),
                "restecg": str(draw.randint(0, 2)),
                "thalach": str(draw.randint(90, 190)),
                "exang": draw.choice("01"),
                "oldpeak": f"{draw.uniform(0, 4):.1f}",
                "slope": draw.choice(["1", "2", "3", "?"]),
                "ca": "" if site == "hungarian" else str(draw.randint(0, 3)),
                "thal": "" if site == "hungarian" else draw.choice("367"),
            }
            found.append(row)
    return found


def write(path: Path, table: list[dict[str, str]], columns: Any = COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    return path


def hospitals(table: Path, **settings: Any) -> Config:
    """The example's configuration for a table."""
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    return configure(HEART / "heart.toml", data=f"csv:{table}", settings={**QUICK, **chosen})
