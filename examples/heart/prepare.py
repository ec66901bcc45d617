"""Join the four hospitals' files into one table: python examples/heart/prepare.py DIRECTORY OUT.csv

DIRECTORY holds cleveland.csv, hungarian.csv, switzerland.csv and va.csv; README.md says where they
come from.
"""

import csv
import sys
from pathlib import Path

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FEATURES = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg",
    "thalach", "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
NO_VALUE = {"", "?", "-9", "-9.0"}
NEVER_ZERO = ("chol", "trestbps")  # a living patient has some: 0 means that nobody measured


def joined(directory: Path) -> list[dict[str, str]]:
    """All rows, with `site` and `disease` (no: num is 0, yes: 1 to 4)."""
    rows = []
    for site in HOSPITALS:
        with (directory / f"{site}.csv").open(newline="") as file:
            for found in csv.DictReader(file):
                row = {"site": site, "disease": "no" if float(found["num"]) == 0 else "yes"}
                row |= {name: _value(name, found[name]) for name in FEATURES}
                rows.append(row)
    return rows


def _value(name: str, word: str) -> str:
    word = word.strip()
    if word in NO_VALUE or (name in NEVER_ZERO and float(word) == 0):
        return ""
    return word


def main(directory: Path, out: Path) -> None:
    rows = joined(directory)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["site", "disease", *FEATURES])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{out}: {len(rows)} rows of {len(HOSPITALS)} hospitals")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
