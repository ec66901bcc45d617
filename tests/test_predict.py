"""`pfedes predict`: a client's model on pictures, as a user types it."""

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import pfedes.data.readers.images
from commands import command, refused
from pfedes import DataError, Federation, PersonalModel, Run, StoreError, cli, open_run
from pfedes.core.payload import Payload, encode, read_payload
from pfedes.data import sources
from pfedes.data.readers.images import open_picture
from pfedes.errors import DamageError
from pfedes.export.model import read_image
from pfedes.export.model_files import export_model
from pfedes.formatting import plain
from pfedes.store.run_store import KEPT_DATA, RunStore
from running import small

CLIENT = "client-0002"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best round by validation is its first of two."""
    place = tmp_path_factory.mktemp("made") / "run"
    settings: dict[str, Any] = {"train__epochs": 3, "train__lr": 0.03, "runtime__report": False}
    run = Federation(small(seed=3, **settings), out=place).run()
    assert (run.manifest.best_round, run.manifest.round) == (1, 2)
    return place


@pytest.fixture(scope="module")
def pictures(made: Path) -> Path:
    """The client's test images as PNG, in two folders."""
    run, place = open_run(made), made.parent / "pictures"
    images = run.simulation.population.client(CLIENT).test.inputs.numpy()
    assert len(images) >= 4
    for number, pixels in enumerate(images):
        folder = place / ("b" if number % 2 else "a")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    (place / "notes.txt").write_text("no picture")
    return place


def by_hand(run: Run, files: list[Path], *, best: bool = False) -> torch.Tensor:
    """The probabilities by the model itself, on what the client's own test batches would be."""
    normalise = run.simulation.population.normaliser
    x = normalise(torch.tensor(np.stack([np.asarray(Image.open(file)) for file in files])))
    with torch.no_grad():
        found: torch.Tensor = run.model(CLIENT, best=best).eval()(x).softmax(1)
    return found


def test_the_same_as_the_model_itself(made: Path, pictures: Path) -> None:
    files = sorted(pictures.rglob("*.png"))
    expected = by_hand(open_run(made), files)
    done = command("predict", str(made), str(pictures), "--client", CLIENT, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["file"] for row in rows] == [str(file) for file in files]
    assert [row["label"] for row in rows] == [str(n) for n in expected.argmax(1).tolist()]
    for row, probability in zip(rows, expected.amax(1).tolist(), strict=True):
        assert row["probability"] == pytest.approx(probability, abs=1e-6)


def test_the_best_round_is_another_model(made: Path, pictures: Path) -> None:
    run, files = open_run(made), sorted(pictures.rglob("*.png"))
    last, best = (run.personal(CLIENT, best=best) for best in (False, True))
    assert (last.facts.round, best.facts.round) == (2, 1)
    for personal, is_best in ((last, False), (best, True)):
        found = [row.probability for row in personal.predict(files)]
        assert found == pytest.approx(by_hand(run, files, best=is_best).amax(1).tolist(), abs=1e-6)
        standing = run.store.manifest(personal.facts.round).clients[CLIENT]
        assert personal.facts.scores == standing.scores
    assert last.predict(files) != best.predict(files)


def test_a_table_and_its_footer(
    made: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(made), "a/000.png", "--client", CLIENT, "--top", "3"]
    shutil.copytree(pictures / "a", "a")
    assert cli.execute(words) == 0
    head, first, second, third, foot = capsys.readouterr().out.splitlines()
    assert head.split() == ["picture", "label", "probability"]
    assert first.startswith("a/000.png ")
    assert second.startswith(third[:10].strip() or " ")
    values = [float(line.split()[-2]) for line in (first, second, third)]
    assert values == sorted(values, reverse=True)
    assert "after round 2" in foot
    assert "trained on 3 of 10 classes" in foot


def test_more_classes_than_there_are(made: Path, pictures: Path) -> None:
    personal = open_run(made).personal(CLIENT)
    rows = personal.predict([pictures / "a" / "000.png"], top=99)
    assert len(rows) == 10
    assert sum(row.probability for row in rows) == pytest.approx(1)
    assert len({row.label for row in rows}) == 10


def test_csv_and_files(
    made: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(made), str(pictures), "--client", CLIENT, "--top", "2"]
    assert cli.execute([*words, "--csv"]) == 0
    printed = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert list(rows[0]) == ["file", "label", "probability"]
    assert len(rows) == 2 * len(list(pictures.rglob("*.png")))
    assert cli.execute([*words, "--out", "found.csv"]) == 0
    assert capsys.readouterr().out == "found.csv\n"
    assert Path("found.csv").read_text() == printed
    assert cli.execute([*words, "--out", "found.json"]) == 0
    assert [row["label"] for row in json.loads(Path("found.json").read_text())] == [
        row["label"] for row in rows
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.csv", "found.json"]


def test_kinds_of_pictures(made: Path, pictures: Path, tmp_path: Path) -> None:
    """Grey, transparent, with a palette, of another size: all become what the model takes."""
    personal = open_run(made).personal(CLIENT)
    plain = Image.open(pictures / "a" / "000.png")
    clear = plain.copy()
    clear.putalpha(7)
    clear.save(tmp_path / "clear.png")
    plain.convert("L").save(tmp_path / "grey.png")
    plain.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "palette.gif")
    plain.save(tmp_path / "named-otherwise.dat", format="BMP")
    expected = personal.predict([pictures / "a" / "000.png"])[0]
    for row in personal.predict(sorted(tmp_path.iterdir())):
        assert row.label == expected.label
        assert row.probability == pytest.approx(expected.probability, abs=1e-6), row
    plain.resize((57, 91)).save(tmp_path / "large.jpg")
    assert personal.predict([tmp_path / "large.jpg"])[0].label == expected.label


def test_sizes_that_are_not_square_and_grey_models(tmp_path: Path) -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 15)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    assert open_picture(tmp_path / "x.png", (8, 6)).shape == (8, 6, 3)
    assert open_picture(tmp_path / "x.png", 5).shape == (5, 5, 3)
    assert np.array_equal(open_picture(tmp_path / "x.png", 0, channels=1)[..., 0], pixels)
    with pytest.raises(DataError, match="1 or 3 channels, not 4"):
        open_picture(tmp_path / "x.png", 0, channels=4)


def test_unreadable_pictures_are_named_and_nothing_is_said(
    made: Path, pictures: Path, tmp_path: Path
) -> None:
    shutil.copytree(pictures, tmp_path / "p")
    good = (tmp_path / "p/a/000.png").read_bytes()
    (tmp_path / "p/a/001.png").write_bytes(good[: len(good) // 2])
    of = ("predict", str(made), "--client", CLIENT)
    line = refused(*of, "p", "--out", "found.csv")
    assert "p/a/001.png cannot be read as a picture" in line
    assert "nor can" not in line
    for number in range(10, 18):
        (tmp_path / f"p/b/{number}.png").write_bytes(b"nothing")
    personal = open_run(made).personal(CLIENT)
    with pytest.raises(DataError, match=r"001\.png cannot.*; nor can .*b/10\.png.* and 3 more$"):
        personal.predict(["p"])


def test_what_a_decoder_may_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "x.png")
    monkeypatch.setattr(pfedes.data.readers.images, "BIG", 80)
    with pytest.raises(DataError, match=r"x.png cannot .*: a picture of 9x9 is too large"):
        open_picture(tmp_path / "x.png", 0)

    def broken(self: Image.Image, mode: str) -> Image.Image:
        raise SyntaxError("broken PNG file")

    monkeypatch.setattr(Image.Image, "convert", broken)
    monkeypatch.setattr(pfedes.data.readers.images, "BIG", 81)
    with pytest.raises(DataError, match="broken PNG file"):
        open_picture(tmp_path / "x.png", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x.png"], "has 4 clients: choose one with --client: client-0000, client-0001,"),
        (
            ["x.png", "--client", "client-002"],
            "unknown client 'client-002'; did you mean 'client-0",
        ),
        (["--client", CLIENT], "FILE"),
        (["missing.png", "--client", CLIENT], "missing.png cannot be read as a picture: No such"),
        (["empty", "--client", CLIENT], "empty holds no pictures"),
        (["x.png", "--csv", "--json"], "--csv and --json: give one of them"),
        (["x.png", "--out", "found.txt"], "must end with .csv or .json"),
        (["x.png", "--csv", "--out", "found.json"], "the two do not agree"),
        (["x.png", "--out", "no/where.csv"], "cannot write no/where.csv"),
        (["x.png", "--top", "0"], "--top"),
    ],
)
def test_wrong_input(
    words: list[str], said: str, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert cli.execute(["predict", str(made), *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert said in line
    assert [path.name for path in Path().iterdir()] == ["empty"]


def test_no_run_and_other_data(made: Path, tmp_path: Path) -> None:
    assert cli.execute(["predict", "nowhere", "x.png"]) == 2
    shutil.copytree(made, tmp_path / "other")
    about = json.loads((made / "environment.json").read_text())
    for key, said in (("data", "trained on other data"), ("federation", "has a changed key")):
        text = json.dumps({**about, key: "something else"})
        (tmp_path / "other" / "environment.json").write_text(text)
        with pytest.raises(StoreError, match=said):
            open_run("other").personal(CLIENT)


@pytest.mark.parametrize("best", [False, True])
def test_models_are_of_use_without_the_data(
    best: bool, made: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = _measured_on_the_data(made, best)

    def gone(*_: object) -> None:
        raise DataError("no such data")

    monkeypatch.setattr(sources, "load", gone)
    personal = open_run(made).personal(CLIENT, best=best)
    assert personal.predict([pictures]) == measured.predict([pictures])
    assert personal.facts == measured.facts
    export_model(personal, tmp_path / "exported")
    with pytest.raises(DataError, match="no such data"):
        open_run(made).client(CLIENT)


def _measured_on_the_data(made: Path, best: bool) -> PersonalModel:
    """As in a run that kept nothing of its data."""
    run = open_run(made)
    run.stored = None
    return run.personal(CLIENT, best=best)


@pytest.mark.parametrize("damage", ["mean", "labels", "class_names", "shape"])
def test_what_was_kept_of_the_data_is_checked(damage: str, made: Path, tmp_path: Path) -> None:
    run = open_run(shutil.copytree(made, tmp_path / "run"))
    path = run.store.state / KEPT_DATA
    kept = read_payload(path)
    if damage == "labels":
        kept = Payload({"labels": kept.tensors["labels"] + 100}, kept.meta)
    else:
        kept = Payload(kept.tensors, {**kept.meta, damage: "[1e999]"})
    path.write_bytes(encode(kept))
    with pytest.raises(DamageError, match=r"data\.safetensors is damaged"):
        run.personal(CLIENT)


def test_a_missing_model_names_the_way_back(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "run")
    next((tmp_path / "run/state/clients" / CLIENT).rglob("00002.safetensors")).unlink()
    with pytest.raises(StoreError, match=r"client-0002 after round 2 cannot .* round 1 is intact"):
        open_run("run").personal(CLIENT)
    assert open_run("run").personal(CLIENT, best=True).facts.round == 1


def test_a_run_that_went_on_meanwhile(tmp_path: Path) -> None:
    """Between opening and looking, rounds passed, and what was there is gone."""
    settings: dict[str, Any] = {
        "train__rounds": 1,
        "runtime__keep_rounds": 1,
        "runtime__report": False,
    }
    Federation(small(**settings), out=tmp_path / "run").run()
    opened = open_run("run")
    Federation.resume(tmp_path / "run", rounds=3).run()
    assert not list((tmp_path / "run").rglob("state/clients/*/*/00001.safetensors"))
    personal = opened.personal(CLIENT)
    assert personal.facts.round == 3
    assert personal.facts.sent.rounds == 3


def test_one_client_needs_no_name_and_may_be_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"partition__clients": 1, "partition__classes_per_client": 10, "train__rounds": 1}
    config = small("standalone", **one, partition__split=[0.8, 0.0, 0.2], runtime__report=False)
    run = Federation(config, out=tmp_path / "run").run()
    personal = run.personal()
    assert isinstance(personal, PersonalModel)
    assert personal.facts.client == "client-0000"
    with pytest.raises(StoreError, match="has no best round"):
        run.personal(best=True)
    Image.new("RGB", (40, 40)).save("x.png")
    for place in RunStore.open(tmp_path / "run").rounds()[1:]:
        (tmp_path / "run/state/manifests" / f"{place:05d}.json").unlink()
    assert cli.execute(["predict", "run", "x.png", "--csv"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("file,label,probability\nx.png,")
    untrained, one_class = shown.err.splitlines()
    assert untrained == (
        "pfedes: warning: client-0000 has not trained yet: this is the model with which new "
        "clients start"
    )
    assert one_class.startswith("pfedes: warning: the model predicts one class only, '")


def test_names_that_a_terminal_would_obey() -> None:
    assert plain("a\x1b[2Jb\n\udcff.png") == "a?[2Jb??.png"


def test_no_picture_starts_a_program(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostScript, whatever its file is called, is what Pillow has Ghostscript draw."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'it-ran'}\n")
    (place / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    script = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "cat.png").write_text(script)
    assert "cannot be read as a picture" in refused(
        "predict", str(made), "--client", CLIENT, str(tmp_path / "cat.png")
    )
    with pytest.raises(OSError, match="cannot identify"):
        read_image(tmp_path / "cat.png", {"shape": [3, 8, 8]})
    # Nor where somebody else opens it, as the reader of Hugging Face's data sets does.
    with Image.open(tmp_path / "cat.png") as opened, pytest.raises(OSError, match="Ghostscript"):
        opened.load()
    assert not (tmp_path / "it-ran").exists()
