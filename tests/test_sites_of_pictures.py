"""Pictures dealt by site: a folder with metadata.csv, a Hugging Face data set by a column."""

import csv
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from pfedes import Config, Federation, configure, open_run
from pfedes.config import stored_config
from pfedes.errors import PfedesError
from pfedes.population.participants import Participants
from pfedes.population.simulation import Simulation

SITES = {"north": 40, "south": 60}
QUICK = {
    "partition.kind": "natural",
    "table.site": "hospital",
    "models.pool": ["cnn5"],
    "train.rounds": 1,
    "train.epochs": 1,
    "train.batch_size": 8,
    "method.extractor_epochs": 1,
    "runtime.fleet": "serial",
    "runtime.report": False,
}


def shades(site: str, number: int) -> Image.Image:
    """A picture whose brightness tells whose it is: the site by tens, the patient by ones."""
    shade = 100 * (site == "south") + number // 2
    return Image.fromarray(np.full((16, 16), shade, np.uint8))


def folder(place: Path, parts: tuple[str, ...] = ("",)) -> Path:
    """Grey pictures of two classes. Two successive ones are of one patient."""
    lines = []
    for site, count in SITES.items():
        for number in range(count):
            part = parts[(number // 2) % len(parts)]
            name = Path(part, ("ill", "well")[number // 2 % 4 > 0], f"{site}-{number}.png")
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shades(site, number).save(place / name)
            lines.append({"file_name": name, "hospital": site, "patient": f"{site}{number // 2}"})
    write(place, lines)
    return place


def write(place: Path, lines: list[dict[str, Any]]) -> None:
    with (place / "metadata.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def configured(source: str, **settings: Any) -> Config:
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    return configure(data=source, settings={**QUICK, "data.channels": 1, **chosen})


def population(config: Config) -> Participants:
    found = Simulation(config).population
    assert isinstance(found, Participants)
    return found


def held(config: Config, name: str) -> list[set[int]]:
    """The shades in training, validation and test."""
    client = population(config).client(name)
    return [
        {int(sample.max()) for sample in split.inputs}
        for split in (client.train, client.val, client.test)
    ]


def test_every_site_has_its_own_pictures(tmp_path: Path) -> None:
    config = configured(f"folder:{folder(tmp_path / 'xray')}")
    assert [person.name for person in config.participants] == ["north", "south"]
    assert config.federation.classes == ("ill", "well")
    assert config.federation.channels == 1
    assert len(config.federation.mean) == 1
    assert set.union(*held(config, "north")) == set(range(20))
    assert set.union(*held(config, "south")) == set(range(100, 130))


def test_pictures_of_one_patient_stay_in_one_split(tmp_path: Path) -> None:
    source = f"folder:{folder(tmp_path / 'xray')}"
    splits = held(configured(source, table__group="patient"), "north")
    assert sum(map(len, splits)) == len(set.union(*splits)) == 20
    # Without it they are torn apart.
    assert sum(map(len, held(configured(source), "north"))) > 20


def test_a_test_set_of_their_own_stays_one(tmp_path: Path) -> None:
    source = f"folder:{folder(tmp_path / 'xray', ('train', 'train', 'test'))}"
    train, val, test = held(configured(source, table__group="patient"), "north")
    assert test == {shade for shade in range(20) if shade % 3 == 2}
    assert train | val == set(range(20)) - test
    assert not train & val


def test_a_run_and_its_stored_configuration(tmp_path: Path) -> None:
    config = configured(f"folder:{folder(tmp_path / 'xray')}")
    Federation(config, out=tmp_path / "run").run()
    stored = stored_config(tmp_path / "run" / "config.toml")
    assert stored.federation_digest() == config.federation_digest()
    (found,) = (
        open_run(tmp_path / "run")
        .personal("south")
        .predict([tmp_path / "xray" / "well" / "south-3.png"])
    )
    assert found.label in ("ill", "well")
    # All sites are in the one folder that has moved.
    (tmp_path / "xray").rename(tmp_path / "moved")
    moved = stored.with_data_in(tmp_path / "moved")
    open_run(tmp_path / "run").store.check_data(population(moved).digest)


def test_a_hugging_face_data_set_is_dealt_by_a_column(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["ill", "well"]),
            "hospital": datasets.ClassLabel(names=list(SITES)),
        }
    )
    rows = [
        {"image": shades(site, number), "label": int(number % 4 > 0), "hospital": site}
        for site, count in SITES.items()
        for number in range(count)
    ]
    (tmp_path / "set").mkdir()
    found = datasets.Dataset.from_list(rows, features=features)
    found.to_parquet(tmp_path / "set" / "train.parquet")
    config = configured("hf:somebody/xrays", data__dir=str(tmp_path / "set"))
    assert config.participants[0].data == f"hf:{tmp_path / 'set'}"
    assert config.placeless().participants[0].data == "hf:"
    assert set.union(*held(config, "north")) == set(range(20))
    assert set.union(*held(config, "south")) == set(range(100, 130))
    with pytest.raises(PfedesError, match="unknown column 'ward'"):
        configured(f"hf:{tmp_path / 'set'}", table__site="ward")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no file", r"metadata\.csv cannot be read: No such file"),
        ("no line", r"metadata\.csv has no line about ill/north-0\.png"),
        ("two lines", r"metadata\.csv has two lines about ill/north-0\.png"),
        ("no site", "row 1, column 'hospital': the site is missing"),
    ],
)
def test_unusable_metadata_files_are_refused(change: str, message: str, tmp_path: Path) -> None:
    place = folder(tmp_path / "xray")
    with (place / "metadata.csv").open(newline="") as file:
        first, *rest = csv.DictReader(file)
    match change:
        case "no file":
            (place / "metadata.csv").unlink()
        case "no line":
            write(place, rest)
        case "two lines":
            write(place, [first, first, *rest])
        case "no site":
            write(place, [first | {"hospital": ""}, *rest])
    with pytest.raises(PfedesError, match=message):
        configured(f"folder:{place}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table__site": "ward"}, "unknown column 'ward'"),
        ({"table__numbers": ["age"]}, "table.numbers is for csv and parquet, not pictures"),
        ({"table__group": "ward"}, "unknown column 'ward'"),
    ],
)
def test_unusable_table_keys_of_pictures_are_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = f"folder:{folder(tmp_path / 'xray')}"
    with pytest.raises(PfedesError, match=message):
        Simulation(configured(source, **settings))


def test_a_test_set_that_a_site_or_patient_does_not_fit(tmp_path: Path) -> None:
    place = folder(tmp_path / "xray", ("train", "test"))
    with (place / "metadata.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    write(place, [line | {"patient": "everybody"} for line in lines])
    with pytest.raises(PfedesError, match="'everybody' has pictures in the training and in"):
        Simulation(configured(f"folder:{place}", table__group="patient"))
    sorted_ = [line | {"hospital": line["file_name"].split("/")[0]} for line in lines]
    write(place, sorted_)
    with pytest.raises(PfedesError, match="all its pictures are in the test part of folder:"):
        Simulation(configured(f"folder:{place}"))
