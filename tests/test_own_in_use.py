"""What participants have after training: their own models predict, and leave as files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import pfedes.export.model_files
from exported import elsewhere, needs_onnx, snippets
from people import OWN, PEOPLE, federation
from pfedes import DataError, Federation, ModelError, Participant, cli, configure, open_run
from pfedes.export import onnx
from pfedes.export.model_files import export_model

TABLES = OWN.parent / "tables"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One round, then resumed for another."""
    place = tmp_path_factory.mktemp("in-use") / "run"
    Federation(federation(train__rounds=1, runtime__report=True), out=place).run()
    Federation.resume(place, rounds=2).run()
    return place


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wards") / "run"
    settings = {"train.rounds": 1, "runtime.fleet": "serial", "runtime.report": False}
    Federation(configure(TABLES / "federation.toml", settings=settings), out=place).run()
    return place


@pytest.mark.parametrize("name", PEOPLE)
def test_a_participants_own_model_predicts_and_is_exported(
    name: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_run(trained)
    client = run.simulation.population.client(name)
    Image.fromarray(client.test.inputs[0].numpy()).save(tmp_path / "image.png")
    assert cli.execute(["predict", str(trained), "--client", name, "image.png", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    with torch.no_grad():
        chances = run.model(name).eval()(client.test.batch(slice(0, 1)).x).softmax(1)
    names = run.simulation.population.class_names
    assert row["label"] == names[int(chances.argmax())]
    assert row["probability"] == pytest.approx(float(chances.max()), abs=1e-6)

    assert cli.execute(["export", str(trained), "--client", name, "--out", "out"]) == 0
    out = tmp_path / "out"
    (tmp_path / "image.png").rename(out / "image.png")
    (snippet,) = snippets(out)
    code = f"import sys; sys.path.append({str(OWN)!r})\n{snippet}\nprint(model.training)"
    # And without any file of ours: the participant's function, torch and safetensors.
    function = run.config.participants[PEOPLE.index(name)].model.rpartition(":")[2]
    plain = f"""
import json, models, torch
from safetensors.torch import load_file
network = models.{function}({len(names)}, {tuple(client.shape)})
network.load_state_dict(load_file("model.safetensors"))
network.eval()
x = torch.tensor({client.test.batch(slice(0, 3)).x.tolist()})
print(json.dumps(network(x).softmax(1).tolist()))
"""
    likeliest, training, chances_there = elsewhere(code + plain, out).splitlines()
    assert training == "False"
    assert likeliest.startswith(f"[('{row['label']}', {row['probability']:.4f}"[:-2])
    found = torch.tensor(json.loads(chances_there))
    with torch.no_grad():
        expected = run.model(name).eval()(client.test.batch(slice(0, 3)).x).softmax(1)
    assert torch.allclose(found, expected, atol=1e-6)

    card = (out / "README.md").read_text()
    assert f"# {name}: models.py:{function} for images of" in card
    assert "- Data: the client's own." in card
    assert str(OWN) not in card + (out / "config.json").read_text()
    assert "With that code, torch," in " ".join(card.split())


@needs_onnx
@pytest.mark.parametrize("name", ["ben", "cleo"])
def test_attention_and_batch_normalisation_as_onnx(
    name: str, trained: Path, tmp_path: Path
) -> None:
    personal = open_run(trained).personal(name)
    out = export_model(personal, "out", onnx=True)
    channels, height, width = personal.shape
    pixels = torch.randint(0, 256, (3, height, width, channels), dtype=torch.uint8)
    whole = onnx.Whole(personal.model, personal.prepare).eval()
    assert onnx._difference(whole, out / "model.onnx", pixels) < onnx.TOLERANCE


def test_the_report_names_everybody(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert all(name in page for name in PEOPLE)


def test_code_that_builds_something_else_by_now(trained: Path, tmp_path: Path) -> None:
    personal = open_run(trained).personal("ada")
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    object.__setattr__(personal, "untrained", lambda: other)
    with pytest.raises(
        ModelError, match=r"models\.py:mlp no longer builds the network that ada trained"
    ):
        export_model(personal, "out")
    assert not (tmp_path / "out").exists()


def test_rows_of_a_table(wards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_run(wards)
    rows = run.simulation.population.client("north").test.inputs[:3].numpy()
    np.save("rows.npy", rows)
    titles = ",".join(f"feature{n}" for n in range(rows.shape[1]))
    np.savetxt("rows.csv", rows, delimiter=",", header=titles, comments="", fmt="%.9g")
    np.savetxt("bare.csv", rows[:1], delimiter=",", fmt="%.9g")
    personal = run.personal("north")
    by_array, by_table = personal.predict(["rows.npy"]), personal.predict(["rows.csv"])
    assert [row.file for row in by_array] == ["rows.npy:1", "rows.npy:2", "rows.npy:3"]
    assert [row[1:] for row in by_array] == [row[1:] for row in by_table]
    assert personal.predict(["bare.csv"])[0][1:] == by_array[0][1:]
    assert cli.execute(["predict", str(wards), "--client", "north", "rows.csv"]) == 0
    assert "rows.csv:3" in capsys.readouterr().out

    (tmp_path / "few.csv").write_text("1,2\n")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    (tmp_path / "gaps.csv").write_text(",".join(["nan"] * 30) + "\n")
    for file, what in (
        ("few.csv", r"few.csv holds 1 x 2 numbers, expected n x 30"),
        ("words.csv", r"words.csv cannot .* line 2, column 1 \('a'\): 'c' is not a number"),
        ("gaps.csv", "holds NaN or infinity"),
        ("nowhere.npy", "No such file"),
        ("../x.png", "cannot be read as numbers"),
    ):
        with pytest.raises(DataError, match=what):
            personal.predict([file])


def test_a_model_of_tables_leaves(wards: Path, tmp_path: Path) -> None:
    run = open_run(wards)
    personal = run.personal("west")
    out = export_model(personal, "out")
    rows = run.simulation.population.client("west").test.inputs
    state = load_file(out / "model.safetensors")
    assert state.keys() == run.model("west").state_dict().keys()
    (snippet,) = snippets(out)
    code = f"import sys; sys.path.append({str(TABLES)!r})\nnumbers = {rows[0].tolist()}\n{snippet}"
    expected = personal.probabilities(rows[:1])[0]
    assert f"{float(expected.max()):.5f}"[:-1] in elsewhere(code, out)
    # A row is too like a bias for that to be promised.
    assert "is on the list" not in (out / "README.md").read_text()
    config = json.loads((out / "config.json").read_text())
    assert torch.equal(pfedes.export.model.prepare(rows, config), personal.prepare(rows))


@needs_onnx
def test_tables_as_onnx(wards: Path, tmp_path: Path) -> None:
    personal = open_run(wards).personal("south")
    out = export_model(personal, "out", onnx=True)
    _, snippet = snippets(out)
    code = f"numbers = {[0.5] * 30}\n{snippet}\nprint(probabilities[0].tolist())"
    found = torch.tensor(json.loads(elsewhere(code, out)))
    expected = personal.probabilities(torch.full((1, 30), 0.5))[0]
    assert torch.allclose(found, expected, atol=onnx.TOLERANCE)


TIED = """
from torch import nn

class Tied(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.first = nn.Linear(shape[0] * shape[1] * shape[2], 16)
        self.there, self.back = nn.Linear(16, 16), nn.Linear(16, 16)
        self.back.weight = self.there.weight
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.back(self.there(self.first(x.flatten(1)).relu()).relu()))

def tied(classes, shape):
    return Tied(classes, shape)
"""


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    person = Participant(name="eve", model=f"{tmp_path}/tied.py:tied", data=f"{OWN}/data.py:small")
    settings = {
        "federation.classes": list(federation().federation.classes),
        "train.rounds": 2,
        "runtime.fleet": "serial",
        "runtime.report": False,
    }
    run = Federation(configure(participants=[person], settings=settings), out="run").run()
    model = run.model("eve")
    assert model.get_parameter("back.weight") is model.get_parameter("there.weight")
    state = load_file(export_model(run.personal("eve"), "out") / "model.safetensors")
    assert torch.equal(state["back.weight"], state["there.weight"])
