"""Tables with named columns: sites as clients, what is learned of columns, safe prediction."""

import csv
import json
import os
import random
import runpy
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import heart
from commands import command, complaint
from exported import elsewhere, needs_onnx, snippets
from pfedes import Config, Federation, PersonalModel, configure, open_run
from pfedes.config import stored_config
from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant
from pfedes.data.preprocess import (
    CategoryColumn,
    NumberColumn,
    Preprocess,
    canonical,
    read_csv,
)
from pfedes.data.tables import TableConfig, columns_of, fitted, read_table
from pfedes.errors import ConfigError, DamageError, DataError, PfedesError
from pfedes.export.model_files import export_model
from pfedes.export.onnx import TOLERANCE
from pfedes.population.own_data import own_data
from pfedes.population.participants import Participants
from pfedes.population.simulation import Simulation
from ward import ward

FEATURES = heart.COLUMNS[2:]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("heart")
    table = heart.write(place / "heart.csv", heart.rows())
    Federation(heart.hospitals(table), out=place / "run").run()
    return place / "run"


@pytest.fixture(scope="module")
def model(run: Path) -> PersonalModel:
    return open_run(run).personal("cleveland")


def test_every_site_is_a_client_with_its_own_rows(run: Path) -> None:
    config = stored_config(run / "config.toml")
    assert [person.name for person in config.participants] == sorted(heart.SITES)
    assert config.federation.classes == ("no", "yes")
    population = Simulation(config).population
    for name, count in heart.SITES.items():
        assert sum(map(len, population.labels(name).values())) == count


def test_a_stored_configuration_is_the_same_run(run: Path) -> None:
    config = heart.hospitals(run.parent / "heart.csv")
    stored = stored_config(run / "config.toml")
    assert stored.federation_digest() == config.federation_digest()
    assert stored.result_digest() == config.result_digest()


def table_of(path: Path, text: str, **keys: Any) -> tuple[str, TableConfig]:
    path.write_text(text)
    return f"csv:{path}", TableConfig(label="y", **keys)


def test_numbers_by_hand(tmp_path: Path) -> None:
    text = "y,cp,age\na,x,1\nb,,3\na,z,\nb,x,100\n"
    keys = {"numbers": ["age"], "categories": {"cp": []}, "missing": "impute"}
    source, config = table_of(tmp_path / "t.csv", text, **keys)
    table = columns_of(source, config)
    found = fitted(table, [0, 1, 2], config)  # the 100 is not in training
    assert found.numbers == (NumberColumn("age", mean=2.0, std=1.0, fill=2.0, low=1.0, high=3.0),)
    assert found.categories == (CategoryColumn("cp", ("x", "z"), True, ("x", "z")),)
    assert found.features == ["age", "cp=x", "cp=z", "cp=unknown"]
    inputs, flags = found.encode(table)
    assert inputs.tolist() == [[-1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0], [98, 1, 0, 0]]
    assert flags == [
        [],
        ["cp: missing"],
        ["age: missing"],
        ["age: 100 is far outside 1..3"],
    ]
    assert Preprocess.from_json(found.to_json()) == found


def test_agreed_statistics_and_levels(tmp_path: Path) -> None:
    keys = {"numbers": ["age"], "categories": {"cp": ["1", "2"]}}
    agreed = {"mean": {"age": 10.0}, "std": {"age": 5.0}}
    source, config = table_of(tmp_path / "t.csv", "y,age,cp\na,20,1.0\nb,0,1\n", **keys, **agreed)
    inputs, _ = fitted(columns_of(source, config), [0, 1], config).encode(
        columns_of(source, config)
    )
    assert inputs.tolist() == [[2, 1, 0, 0], [-2, 1, 0, 0]]
    found = fitted(columns_of(source, config), [0, 1], config)
    _, flags = found.encode({"age": ["5", "5"], "cp": ["2", "9"]})
    assert flags == [["cp: '2' never seen in training"], ["cp: '9' is not a known category"]]


def test_check_names_columns_that_say_nothing(tmp_path: Path) -> None:
    lines = [f"{'ab'[n % 2]},{n},7,x,{'pq'[n % 2]}" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["y,age,size,ward,sex", *lines]) + "\n")
    (tmp_path / "n.py").write_text(
        "from torch import nn\n\ndef f(classes, shape):\n    return nn.Linear(shape[0], classes)\n"
    )
    (tmp_path / "p.toml").write_text(
        'name = "p"\nmodel = "n.py:f"\ndata = "csv:t.csv"\n[table]\nlabel = "y"\n'
        'numbers = ["age", "size"]\n[table.categories]\nward = []\nsex = ["p", "q"]\n'
    )
    said = command("check", str(tmp_path / "p.toml")).stdout
    assert "which are age, size, ward=x, ward=unknown, sex=p, sex=q, sex=unknown" in " ".join(
        said.split()
    )
    notes = [line for line in said.splitlines() if "models learn nothing from it" in line]
    assert [note.split("'")[1] for note in notes] == ["size", "ward"]


def test_levels_that_a_table_spells_otherwise_are_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would all become unknown, and the column would say nothing."""
    table = [row | ({"sex": "Male"} if row["site"] == "va" else {}) for row in heart.rows()]
    path = heart.write(tmp_path / "heart.csv", table)
    line = "column 'sex': 32 of 32 rows have none of its levels, but 'Male': they count as unknown"
    Federation(heart.hospitals(path, train__rounds=1), out=tmp_path / "run").run()
    told = [r.message for r in caplog.records if "levels" in r.message]
    assert told == [f"va: {line}"]
    for file in ("cleveland.toml", "federation.toml", "networks.py"):
        text = (heart.HEART / file).read_text().replace('"cleveland"', '"va"')
        (tmp_path / file).write_text(text)
    terms = str(tmp_path / "federation.toml")
    done = command("check", str(tmp_path / "cleveland.toml"), "--federation", terms)
    assert f"note: {line}" in done.stdout


def test_a_column_without_any_value_says_nothing(tmp_path: Path) -> None:
    keys = {"numbers": ["age"], "missing": "impute"}
    source, config = table_of(tmp_path / "t.csv", "y,age\na,\nb,NA\n", **keys)
    found = fitted(columns_of(source, config), [0, 1], config)
    inputs, flags = found.encode({"age": ["", "7"]})
    assert inputs[0, 0] == 0
    assert flags == [["age: missing"], ["age: 7, no value in training"]]


def test_parquet_is_read_alike(tmp_path: Path) -> None:
    table = pa.table({"y": ["a", "b"], "age": [1.5, None], "cp": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet")
    config = TableConfig(label="y", numbers=("age",), categories={"cp": ()}, missing="impute")
    found = columns_of(f"parquet:{tmp_path / 't.parquet'}", config)
    assert found == {"y": ["a", "b"], "age": ["1.5", ""], "cp": ["1", "2"]}


def test_the_sites_of_a_parquet_file_are_those_of_the_same_csv(run: Path, tmp_path: Path) -> None:
    """Numbers and missing values have types there, and are no words."""
    columns = {name: [row[name] for row in heart.rows()] for name in heart.COLUMNS}
    typed = {
        name: [None if word in ("", "?") else float(word) for word in words]
        for name, words in columns.items()
        if name in FEATURES
    }
    pq.write_table(pa.table({**columns, **typed}), tmp_path / "heart.parquet")
    source = f"parquet:{tmp_path / 'heart.parquet'}"
    found = Simulation(heart.hospitals(run.parent / "heart.csv", data__source=source)).population
    expected = Simulation(stored_config(run / "config.toml")).population
    assert found.names == expected.names
    assert found.digest == expected.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("y,age\n", "it holds no rows"),
        ("y,age,age\na,1,1\n", "'age' is there twice"),
        ("y,age\na,1,2\n", "line 2 has 3 values, expected 2"),
        ("y,years\na,1\n", "unknown column 'age'"),
        ("y,age,weight\na,1,2\n", "nothing says what column 'weight' is"),
        ("y;age\na;36,5\n", "its columns are separated by ';': save it with commas"),
        ("y\tage\na\t1\n", "its columns are separated by"),
        ('y,age\na,"1\n', "quotation marks or commas are out of place"),
    ],
)
def test_unusable_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    source, config = table_of(tmp_path / "t.csv", text, numbers=["age"])
    with pytest.raises(DataError, match=message):
        columns_of(source, config)


def test_a_table_that_is_no_text_in_utf_8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("y,age\ngesünd,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="it is not text in UTF-8: save it as 'CSV UTF-8'"):
        columns_of(f"csv:{tmp_path / 't.csv'}", TableConfig(label="y", numbers=("age",)))


def test_codes_that_a_float_cannot_tell_apart_stay_two() -> None:
    assert canonical(" 1.0 ") == canonical("1") == "1"
    assert canonical("10000000000000001") == "10000000000000001"
    assert canonical("1_0") == "1_0"
    for no_number in ("inf", "-Infinity", "nan", "1e400"):
        assert canonical(no_number) == no_number


def test_columns_with_too_many_levels_are_refused(tmp_path: Path) -> None:
    lines = [f"{'ab'[n % 2]},z{n}" for n in range(101)]
    source, config = table_of(tmp_path / "t.csv", "\n".join(["y,zip", *lines]) + "\n")
    config = config.model_copy(update={"categories": {"zip": ()}})
    table = columns_of(source, config)
    with pytest.raises(DataError, match="column 'zip' has 101 different values, hardly categories"):
        fitted(table, range(101), config)
    assert len(fitted(table, range(100), config).features) == 101


def participant(path: Path, **keys: Any) -> Participant:
    table = TableConfig(label="y", numbers=("age",), **keys)
    return Participant(name="north", model="m.py:f", data=f"csv:{path}", table=table)


def test_missing_values_are_refused_unless_imputed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,age\n" + "a,1\nb,2\n" * 20 + "a,\n")
    federation, rng = FederationConfig(classes=("a", "b")), np.random.default_rng(0)
    with pytest.raises(DataError, match="north: row 41, column 'age': the value is missing"):
        own_data(participant(path), federation, rng)
    assert own_data(participant(path, missing="impute"), federation, rng).shape == (1,)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("old", ""), ("2021-03-04", ""), ("3_7", ""), ('"36,5"', "; write 1234.5, without commas")],
)
def test_words_where_numbers_belong(word: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,age\n" + "a,1\nb,2\n" * 20 + f"a,{word}\n")
    federation, rng = FederationConfig(classes=("a", "b")), np.random.default_rng(0)
    with pytest.raises(DataError) as refused:
        own_data(participant(path), federation, rng)
    bare = word.strip('"')
    assert str(refused.value) == f"north: row 41, column 'age': {bare!r} is not a number{remedy}"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,,s", "north: row 45, column 'age': the value is missing: fill it in, or set table"),
        (",1,s", "north: row 45, column 'y': the label is missing"),
    ],
)
def test_rows_are_counted_in_the_file_not_at_the_site(
    row: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,age,site\n" + "a,1,n\n" * 4 + "a,1,s\nb,2,s\n" * 20 + f"{row}\n")
    federation, rng = FederationConfig(classes=("a", "b")), np.random.default_rng(0)
    with pytest.raises(DataError, match=message):
        own_data(participant(path, site="site", only="s"), federation, rng)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"only": "s"}, "north: table.only = 's' needs table.site"),
        ({"only": "t", "site": "site"}, "north: column 'site': unknown site 't'; known: n, s"),
        ({"only": "n", "site": "site"}, "^north: 1 samples are too few to be divided"),
    ],
)
def test_a_site_that_is_not_there(keys: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,age,site\na,1,s\nb,1,n\n")
    federation, rng = FederationConfig(classes=("a", "b")), np.random.default_rng(0)
    ignored = {} if "site" in keys else {"ignore": ("site",)}
    with pytest.raises(DataError, match=message):
        own_data(participant(path, **keys, **ignored), federation, rng)


@given(st.integers(0, 2**32), st.integers(8, 30))
def test_rows_of_one_patient_stay_in_one_split(
    tmp_path_factory: pytest.TempPathFactory, seed: int, patients: int
) -> None:
    draw = random.Random(seed)
    # A patient's number is its age: what is in a split can be read off its inputs.
    lines = [
        f"{'ab'[number % 2]},{number},p{number}"
        for number in range(patients)
        for _ in range(draw.randint(1, 4))
    ]
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text("\n".join(["y,age,patient", *lines]) + "\n")
    federation = FederationConfig(classes=("a", "b"))
    person = participant(path, group="patient", mean={"age": 0.0}, std={"age": 1.0})
    data = own_data(person, federation, np.random.default_rng(seed))
    splits = [set(split.inputs[:, 0].tolist()) for split in (data.train, data.val, data.test)]
    assert sum(map(len, splits)) == len(set.union(*splits)) == patients
    assert len(data.train) + len(data.val) + len(data.test) == len(lines)


@given(st.permutations(FEATURES), st.booleans())
def test_the_order_of_columns_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory,
    model: PersonalModel,
    columns: list[str],
    labelled: bool,
) -> None:
    place, table = tmp_path_factory.mktemp("t"), heart.rows(1)[:6]
    straight = heart.write(place / "t.csv", table)
    expected = model.predict([straight])
    heart.write(straight, table, [*columns, "disease"] if labelled else columns)
    assert model.predict([straight]) == expected


@given(st.sets(st.sampled_from(FEATURES), min_size=1), st.sets(st.sampled_from(["bmi", "Age"])))
def test_missing_and_unknown_columns_are_refused(
    tmp_path_factory: pytest.TempPathFactory,
    model: PersonalModel,
    dropped: set[str],
    extra: set[str],
) -> None:
    table = [row | dict.fromkeys(extra, "1") for row in heart.rows(1)[:3]]
    path = tmp_path_factory.mktemp("t") / "t.csv"
    heart.write(path, table, [name for name in heart.COLUMNS if name not in dropped])
    with pytest.raises(DataError, match="is missing"):
        model.predict([path])
    if extra:
        heart.write(path, table, [*heart.COLUMNS, *extra])
        with pytest.raises(DataError, match="is unknown"):
            model.predict([path])


@given(st.floats(-1e6, 1e6), st.text("abc019", min_size=1, max_size=3))
def test_unusual_values_are_flagged(
    tmp_path_factory: pytest.TempPathFactory, model: PersonalModel, age: float, pain: str
) -> None:
    assert model.table is not None
    (known,) = [column for column in model.table.numbers if column.name == "age"]
    assert known.low is not None
    assert known.high is not None
    row = heart.rows(1)[0] | {"age": repr(age), "cp": pain}
    path = heart.write(tmp_path_factory.mktemp("t") / "t.csv", [row])
    (found,) = model.predict([path])
    room = (known.high - known.low) / 2
    far = not known.low - room <= age <= known.high + room
    assert any(flag.startswith("age:") for flag in found.flags) is far
    level = str(int(pain)) if pain.isdecimal() else pain
    foreign = level not in ("1", "2", "3", "4")
    assert any(flag.startswith("cp:") for flag in found.flags) is foreign


@given(st.integers(1, 2 * len(FEATURES)))
def test_by_position_a_row_has_exactly_the_features(
    tmp_path_factory: pytest.TempPathFactory, model: PersonalModel, width: int
) -> None:
    place, table = tmp_path_factory.mktemp("t"), heart.rows(1)[:3]
    titled = heart.write(place / "titled.csv", table, FEATURES)
    bare = place / "bare.csv"
    cells = [[row[name] for name in FEATURES] + ["1"] * len(FEATURES) for row in table]
    bare.write_text("".join(",".join(row[:width]) + "\n" for row in cells))
    if width == len(FEATURES):
        found = model.predict([bare], columns_by_position=True)
        assert [row[1:] for row in found] == [row[1:] for row in model.predict([titled])]
    else:
        with pytest.raises(DataError, match=f"has {width} values, expected {len(FEATURES)}"):
            model.predict([bare], columns_by_position=True)


def test_predict_on_the_command_line(run: Path, tmp_path: Path) -> None:
    table = [heart.rows(1)[0] | {"age": "500"}]
    titled = heart.write(tmp_path / "titled.csv", table, FEATURES)
    bare = tmp_path / "bare.csv"
    bare.write_text(titled.read_text().partition("\n")[2])
    arguments = ("predict", str(run), "--client", "cleveland", "--csv")
    done = command(*arguments, str(titled))
    (found,) = csv.DictReader(done.stdout.splitlines())
    assert "age: 500 is far outside" in found["flags"]
    assert "--columns-by-position" in complaint(command(*arguments, str(bare)))
    other = tmp_path / "other.csv"
    other.write_text(titled.read_text().replace(",", ";"))
    assert complaint(command(*arguments, str(other))).endswith("';': save it with commas")
    by_position = command(*arguments, str(bare), "--columns-by-position")
    (same,) = csv.DictReader(by_position.stdout.splitlines())
    assert {**same, "file": ""} == {**found, "file": ""}
    line = complaint(command(*arguments, str(titled), "--columns-by-position"))
    assert "its first line names columns" in line


def test_exported_files_predict_raw_rows_without_pfedes(
    model: PersonalModel, tmp_path: Path
) -> None:
    export_model(model, tmp_path / "model")
    table = heart.rows(1)
    table[0]["cp"] = "9"
    rows = heart.write(tmp_path / "model" / "rows.csv", table, sorted(FEATURES))
    shutil.copy(heart.HEART / "networks.py", tmp_path / "model" / "networks.py")
    code = """
import json
from networks import deep
from model import load, predict_rows
from preprocess import Preprocess
width = len(Preprocess.from_json(open("preprocess.json").read()).features)
print(json.dumps(predict_rows("rows.csv", model=load(network=deep(2, (width,))))))
"""
    found = json.loads(elsewhere(code, tmp_path / "model"))
    expected = [(p.label, p.probability, list(p.flags)) for p in model.predict([rows])]
    assert [tuple(row) for row in found] == expected
    assert "cp: '9' is not a known category" in found[0][2]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| cp | 1, 2, 3, 4 | one 0 or 1 each" in card


@needs_onnx
def test_onnx_takes_raw_columns(model: PersonalModel, tmp_path: Path) -> None:
    """The exporter takes seconds."""
    export_model(model, tmp_path / "model", onnx=True)
    table = heart.rows(1)
    table[0] |= {"cp": "9", "age": "500"}
    rows = heart.write(tmp_path / "model" / "rows.csv", table, sorted(FEATURES))
    code = snippets(tmp_path / "model")[1] + "\nprint(probabilities.tolist())"
    found = json.loads(elsewhere(code, tmp_path / "model"))
    for row, chances in zip(model.predict([rows]), found, strict=True):
        assert max(chances) == pytest.approx(row.probability, abs=TOLERANCE)
        assert model.class_names[chances.index(max(chances))] == row.label


def test_the_stored_preprocessing_is_the_one_that_is_used(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    (place,) = (tmp_path / "copy").glob("state/clients/va/*/preprocess.json")
    stored = json.loads(place.read_text())
    stored["numbers"][0]["mean"] = 12.5
    place.write_text(json.dumps(stored))
    used = open_run(tmp_path / "copy").personal("va").table
    assert used is not None
    assert used.numbers[0].mean == 12.5
    place.write_text("{}")
    with pytest.raises(DamageError, match=r"preprocess\.json is damaged"):
        open_run(tmp_path / "copy").personal("va")


@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": [{"std": 0.0}]},
        {"numbers": [{"mean": float("nan")}]},
        {"numbers": [{"mean": "x"}]},
        {"numbers": [{"name": 7}]},
        {"order": ["age"]},
        {"missing": [3]},
        {"others": 3},
    ],
    ids=str,
)
def test_preprocessing_that_no_table_gives_is_refused(
    run: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """It may come from a stranger: a division by zero would be a traceback."""
    shutil.copytree(run, tmp_path / "copy")
    (place,) = (tmp_path / "copy").glob("state/clients/va/*/preprocess.json")
    stored = json.loads(place.read_text())
    first, *others = stored["numbers"]
    columns = [first | change for change in changes.get("numbers", [{}])]
    place.write_text(json.dumps({**stored, **changes, "numbers": [*columns, *others]}))
    with pytest.raises(DamageError, match=r"preprocess\.json is damaged"):
        open_run(tmp_path / "copy").personal("va")


def test_preprocessing_of_another_model_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    (place,) = (tmp_path / "copy").glob("state/clients/va/*/preprocess.json")
    stored = json.loads(place.read_text())
    stored["categories"][0]["levels"].append("9")
    place.write_text(json.dumps(stored))
    with pytest.raises(DamageError, match="the table of va becomes"):
        open_run(tmp_path / "copy").personal("va")


def test_a_damaged_parquet_file_is_one_line(tmp_path: Path) -> None:
    """Arrow has kinds of errors of its own."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"age": list(range(9))}), path)
    whole = path.read_bytes()
    for place in range(len(whole) - 70, len(whole)):  # where the columns' types stand
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 15]) + whole[place + 1 :])
        with suppress(DataError):
            read_table(f"parquet:{path}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models.table": []}, "needs models.table"),
        ({"models.table": ["cnn1"]}, "found 'cnn1'"),
        ({"table.site": ""}, "needs table.site"),
        ({"table.site": "ward"}, "unknown site column 'ward'|unknown column 'ward'"),
        ({"data.source": "digits"}, "needs data.source = 'csv:FILE'"),
        ({"partition.clients": 7}, "partition.clients = 7 is not for a natural partition"),
        ({"partition.split": [0.5, 0.2, 0.3]}, "partition.split = .* is not for a natural"),
        ({"data.limit": 40}, "data.limit = 40 is not for a natural partition"),
    ],
)
def test_unusable_natural_partitions_are_refused(
    settings: dict[str, Any], message: str, run: Path
) -> None:
    with pytest.raises(PfedesError, match=message):
        heart.hospitals(run.parent / "heart.csv", **settings)


def test_a_table_is_read_once_for_all_its_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again for whoever asks later: the file may be another one by then."""
    config = ward(tmp_path / "ward")
    read: list[Path] = []

    def noticing(path: Path) -> dict[str, list[str]]:
        read.append(path)
        return read_csv(path)

    monkeypatch.setattr("pfedes.data.tables.read_csv", noticing)
    for times in (1, 2):
        assert len(Simulation(config).population.names) > 1
        assert len(read) == times


def test_a_table_is_dealt_by_its_sites_only(run: Path) -> None:
    config: Config = configure(data=f"csv:{run.parent / 'heart.csv'}")
    with pytest.raises(DataError, match=r"set partition\.kind = 'natural'"):
        Simulation(config)


def test_sites_need_names_that_clients_can_have(tmp_path: Path) -> None:
    table = [row | {"site": "a/b"} for row in heart.rows()]
    with pytest.raises(ConfigError, match="site 'a/b' cannot name a client: rename it in column"):
        heart.hospitals(heart.write(tmp_path / "t.csv", table))


def test_a_label_with_one_value_is_refused(tmp_path: Path) -> None:
    table = heart.write(tmp_path / "t.csv", [row | {"disease": "no"} for row in heart.rows()])
    with pytest.raises(DataError, match="column 'disease' names one class only, 'no'"):
        heart.hospitals(table)


def test_a_hospital_of_the_example_can_take_part(tmp_path: Path) -> None:
    for file in ("cleveland.toml", "federation.toml", "networks.py"):
        shutil.copy(heart.HEART / file, tmp_path)
    heart.write(tmp_path / "heart.csv", heart.rows())
    terms = str(tmp_path / "federation.toml")
    done = command("check", str(tmp_path / "cleveland.toml"), "--federation", terms)
    assert "cleveland can take part" in done.stdout


def test_the_comparison_by_hand() -> None:
    script = runpy.run_path(str(heart.HEART / "hospitals.py"))
    labels, chances = torch.tensor([0, 0, 1, 1]), torch.tensor([0.1, 0.6, 0.7, 0.8])
    assert script["scores"](labels, chances) == (0.75, 1.0)
    assert all(np.isnan(script["scores"](labels[:2], chances[:2])))
    # 0.5, 0.6, 0.7, 0.8, 0.9: standard deviation 0.158, standard error 0.0707
    assert script["with_interval"]([0.5, 0.6, 0.7, 0.8, 0.9]) == "70.0 ± 19.6"
    assert script["with_interval"]([0.5, float("nan"), 0.6, 0.7, 0.8]) == "65.0 (4 seeds)"


@pytest.mark.skipif(
    not Path(os.environ.get("PFEDES_DATA", ""), "heart", "va.csv").is_file(),
    reason="needs the heart data in $PFEDES_DATA",
)
def test_the_real_hospitals(tmp_path: Path) -> None:
    joined = runpy.run_path(str(heart.HEART / "prepare.py"))["joined"]
    rows = joined(Path(os.environ["PFEDES_DATA"], "heart"))
    config = heart.hospitals(heart.write(tmp_path / "heart.csv", rows))
    population = Simulation(config).population
    assert isinstance(population, Participants)
    counts = {
        name: np.bincount(np.concatenate(list(population.labels(name).values()))).tolist()
        for name in population.names
    }
    assert counts == {
        "cleveland": [164, 139],
        "hungarian": [188, 106],
        "switzerland": [8, 115],
        "va": [51, 149],
    }
