"""`pfedes export`: what it writes works where there is no pfedes, and predicts the same."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import pfedes.export.model_files
from commands import command, process, refused
from exported import elsewhere, needs_onnx, snippets
from pfedes import CNN, Federation, ModelError, PersonalModel, StoreError, cli, open_run
from pfedes.core.samples import Normaliser
from pfedes.data.readers.images import open_picture
from pfedes.export import onnx
from pfedes.export.card import _cell, _interval, card
from pfedes.export.model_files import export_model
from pictures import KINDS
from running import partitioned, small

CLIENT = "client-0001"
FILES = ["README.md", "config.json", "model.py", "model.safetensors"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "run"
    settings: dict[str, Any] = {"train__epochs": 3, "train__lr": 0.03, "runtime__report": False}
    Federation(small(seed=3, **settings), out=place).run()
    return place


@pytest.fixture(scope="module")
def personal(made: Path) -> PersonalModel:
    return open_run(made).personal(CLIENT)


def save_test_images(made: Path, place: Path) -> list[str]:
    """The client's test images as PNG, by their paths."""
    simulation = open_run(made).simulation
    place.mkdir()
    names = []
    for number, pixels in enumerate(simulation.population.client(CLIENT).test.inputs.numpy()):
        names.append(str(place / f"{number}.png"))
        Image.fromarray(pixels).save(names[-1])
    return names


def test_the_command_and_a_process_that_cannot_import_pfedes(made: Path, tmp_path: Path) -> None:
    done = command("export", str(made), "--client", CLIENT)
    assert (done.returncode, done.stderr) == (0, "")
    out = tmp_path / f"export-{CLIENT}"
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert f"export-{CLIENT}/README.md" in done.stdout
    assert "pfedes" not in re.sub("Written by pfedes", "", (out / "model.py").read_text())

    images = save_test_images(made, tmp_path / "images")
    Image.new("L", (50, 70), 99).save(tmp_path / "images" / "other.jpg")
    images.append(str(tmp_path / "images" / "other.jpg"))
    code = "import json; from model import predict\n"
    code += f"print(json.dumps([predict(name, top=10) for name in {images}]))"
    found = json.loads(elsewhere(code, out))

    personal = open_run(made).personal(CLIENT)
    expected = [personal.predict([name], top=10) for name in images]
    assert found == [[[row.label, row.probability] for row in rows] for rows in expected]

    shutil.copy(images[0], out / "image.png")
    (snippet,) = snippets(out)
    printed = elsewhere(snippet + "\nprint(type(model).__name__, model.training)", out)
    assert printed == f"{[tuple(pair) for pair in found[0][:2]]}\nCNN False\n"
    (out / "image.png").unlink()
    assert sorted(path.name for path in out.iterdir()) == FILES

    assert "is there already" in refused("export", str(made), "--client", CLIENT)


def test_plain_torch_and_safetensors_are_enough(
    made: Path, personal: PersonalModel, tmp_path: Path
) -> None:
    """The weights have the names and values of the client's own, without any file of ours."""
    export_model(personal, "out")
    state = load_file(tmp_path / "out" / "model.safetensors")
    own = open_run(made).model(CLIENT).state_dict()
    assert state.keys() == own.keys()
    assert all(torch.equal(state[name], own[name]) for name in own)


def test_batches_agree_to_the_last_bit(personal: PersonalModel, tmp_path: Path) -> None:
    export_model(personal, "out")
    plain = pfedes.export.model.load(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    pixels = torch.randint(0, 256, (40, 32, 32, 3), dtype=torch.uint8)
    x = pfedes.export.model.prepare(pixels, config)
    assert torch.equal(x, personal.prepare(pixels))
    assert torch.equal(plain(x).softmax(1), personal.probabilities(pixels))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_read_as_pfedes_reads_them(name: str, channels: int, tmp_path: Path) -> None:
    KINDS[name].save(tmp_path / name)
    found = pfedes.export.model.read_image(tmp_path / name, {"shape": [channels, 1, 4]})
    assert np.array_equal(found[0], open_picture(tmp_path / name, 0, channels))


def test_the_card(made: Path, personal: PersonalModel, tmp_path: Path) -> None:
    text = (export_model(personal, "out") / "README.md").read_text()
    facts = personal.facts
    scores = facts.scores
    assert f"| test | {scores.test_correct} | {scores.test_total} |" in text
    share = partitioned(open_run(made).simulation.population).shares[CLIENT]
    counted = [sum(counts[split] for counts in facts.samples.values()) for split in range(3)]
    assert counted == [len(share.train), len(share.val), len(share.test)]
    for name, counts in facts.samples.items():
        assert f"| {name} | {counts[0]} | {counts[1]} | {counts[2]} |" in text
    assert "It learned 3 of 10 classes." in text
    assert "It answered 2 rounds with 886 numbers in all" in text
    assert "`conv1.weight` | 8 x 3 x 3 x 3 float32" in text
    assert re.search(r"none of the [\d,]+ numbers of its model\. This check does not find", text)
    assert "Before the first round: its name; the number of its training samples" in text
    assert f"Round: 2 of 2; the client itself last trained in round {facts.trained}." in text
    assert "Seed 3;" in text
    assert str(made.parent) not in text
    best = export_model(open_run(made).personal(CLIENT, best=True), "best")
    assert "Round: 1 of 2, the best by validation" in (best / "README.md").read_text()
    assert "It answered 1 round with 443 numbers" in (best / "README.md").read_text()
    weights = [(Path(place) / "model.safetensors").read_bytes() for place in ("out", "best")]
    assert weights[0] != weights[1]


def test_what_a_strangers_run_says_of_itself_is_no_markup(personal: PersonalModel) -> None:
    forged: dict[str, Any] = {
        key: f"1\n# <b>{key}</b>" for key in ("pfedes", "commit", "torch", "data_digest")
    }
    facts = replace(personal.facts, **forged)
    text = card(replace(personal, facts=facts), 16, None)
    assert "<b>" not in text
    assert "\n# <" not in text
    assert text.count(r"# \<b\>commit\</b\>") == 1


def test_the_header_of_the_card(personal: PersonalModel) -> None:
    """After Hugging Face's convention: YAML between two lines of dashes."""
    _, header, body = (export_model(personal, "out") / "README.md").read_text().split("---\n", 2)
    read = yaml.safe_load(header)
    assert read["library_name"] == "pytorch"
    assert read["pipeline_tag"] == "image-classification"
    assert read["tags"] == ["federated-learning", "personalized", "pfedes"]
    assert read["datasets"] == [personal.facts.data]
    (model,) = read["model-index"]
    assert model["name"] == CLIENT
    scores = personal.facts.scores
    measured = {r["dataset"]["split"]: r["metrics"][0]["value"] for r in model["results"]}
    assert measured == {
        "validation": pytest.approx(scores.val_correct / scores.val_total, abs=1e-4),
        "test": pytest.approx(scores.test_correct / scores.test_total, abs=1e-4),
    }
    assert body.lstrip().startswith(f"# {CLIENT}: ")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"models__pool": ["cnn5"], "train__participation": 0.5}),
        ("lg_fedavg", {"evaluate__after_aggregation": True}),
        ("fedproto", {"method__inference": "nearest_own"}),
        ("fedproto", {"method__inference": "nearest_known"}),
        ("fedtgp", {"method__inference": "nearest_known"}),
        ("fedgh", {"evaluate__after_aggregation": True}),
        ("fedmrl", {"train__participation": 0.5}),
        ("fedmrl", {"evaluate__after_aggregation": True, "train__participation": 0.5}),
    ],
)
def test_methods_whose_inference_needs_something_global(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = small(method, train__rounds=1, runtime__report=False, **settings)
    run = Federation(config, out=tmp_path / "run").run()
    name = min(run.manifest.clients, key=lambda name: run.manifest.clients[name].version)
    personal = run.personal(name)
    assert personal.facts.scores == run.manifest.clients[name].scores
    out = export_model(personal, "out")
    plain = pfedes.export.model.load(out)
    client = run.simulation.population.client(name)
    assert client.score(plain) == personal.facts.scores
    pixels = client.test.inputs
    with torch.no_grad():
        logits = plain(personal.prepare(pixels))
    assert torch.equal(logits, run.model(name)(personal.prepare(pixels)))
    chances = personal.probabilities(pixels)
    assert bool(torch.isfinite(chances).all())
    text = (out / "README.md").read_text()
    assert ("nearest prototype" in text) is (method in ("fedproto", "fedtgp"))
    assert ("runs two networks" in text) is (method == "fedmrl")
    if not personal.facts.trained:
        assert "had not trained" in text
        assert "it has not answered" in text
    elif method == "lg_fedavg":
        assert "numbers of its model (`fc3.bias`, `fc3.weight`)" in text


class Doubled(CNN):
    """A network that is not what it is derived from."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_models_that_would_predict_differently_are_not_exported(
    personal: PersonalModel, tmp_path: Path
) -> None:
    other = Doubled(10, (3, 32, 32), conv2=32, fc1=500)
    with pytest.raises(
        ModelError, match="with a Doubled, and only a client's own network can be exported"
    ):
        export_model(replace(personal, model=other), "out")
    with pytest.raises(ModelError, match="with a Linear"):
        export_model(replace(personal, model=nn.Linear(2, 2)), "out")
    hooked = CNN(10, (3, 32, 32), conv2=32, fc1=500)
    hooked.register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(ModelError, match="does not give the original's predictions"):
        export_model(replace(personal, model=hooked), "out")
    assert not list(tmp_path.iterdir())


def test_an_export_appears_whole_or_not_at_all(
    personal: PersonalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        assert not (tmp_path / "out").exists()
        raise OSError(28, "No space left on device")

    (tmp_path / "empty").mkdir()
    export_model(personal, "empty")
    assert sorted(path.name for path in Path("empty").iterdir()) == FILES
    with pytest.raises(StoreError, match="empty is there already"):
        export_model(personal, "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="file is there already"):
        export_model(personal, "file")
    monkeypatch.setattr(pfedes.export.model_files, "card", fails)
    with pytest.raises(StoreError, match="cannot write out: No space left on device"):
        export_model(personal, "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_other_shapes_and_odd_names(personal: PersonalModel, tmp_path: Path) -> None:
    """Grey images that are not square; a channel that never varies; names from anywhere."""
    shape, names = (1, 20, 26), ("a|b", "c\n# d", "`e` <b>")
    scores = personal.facts.scores.plain  # class by class they are of ten other classes
    facts = replace(personal.facts, samples=dict.fromkeys(names[:2], (1, 1, 1)), scores=scores)
    model = CNN(3, shape, conv2=16, fc1=30)
    grey = PersonalModel(model, names, Normaliser.of([0.3], [0.0]), shape, facts)
    export_model(grey, "out")
    pixels = np.random.default_rng(0).integers(0, 256, (31, 17), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    code = "from model import predict; print(predict('../x.png', top=3))"
    expected = [row[1:3] for row in grey.predict(["x.png"], top=3)]
    assert elsewhere(code, tmp_path / "out") == f"{expected}\n"
    text = (tmp_path / "out" / "README.md").read_text()
    assert r"| a\|b | 1 | 1 | 1 |" in text
    assert "| c # d | 1 | 1 | 1 |" in text
    assert r"It never saw \`e\` \<b\>:" in text


def test_the_program_in_the_exported_file(personal: PersonalModel, tmp_path: Path) -> None:
    export_model(personal, "out")
    Image.new("RGB", (32, 32)).save(tmp_path / "x.png")
    (row,) = personal.predict(["x.png"])
    done = subprocess.run(
        [sys.executable, "-P", "out/model.py", "x.png"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"x.png: {row.label} ({row.probability:.4f})\n"


def test_words_and_intervals() -> None:
    assert _interval(0, 10) == "0.0 to 27.8 %"
    assert _interval(8, 10) == "49.0 to 94.3 %"
    assert _interval(10, 10) == "72.2 to 100.0 %"
    assert _cell(" a\n|b* ") == r"a \|b\*"


def test_a_folders_place_is_not_published(personal: PersonalModel) -> None:
    from pfedes.results.provenance import _without_place

    assert _without_place("folder:/home/someone/scans/") == "folder:scans"
    assert _without_place("hf:owner/name") == "hf:owner/name"


def test_wrong_input(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([], "has 4 clients: choose one"),
        (["--client", "client-001"], "did you mean"),
        (["--client", CLIENT, "--out", str(made)], "is there already"),
        (["--client", CLIENT, "--out", "/proc/no/where"], "cannot write"),
    ):
        assert cli.execute(["export", str(made), *words]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert said in shown.err
        assert len(shown.err.splitlines()) == 1
    assert not list(Path().iterdir())


def test_without_the_extra(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    assert cli.execute(["export", str(made), "--client", CLIENT, "--onnx"]) == 2
    line = "pfedes: --onnx needs the extra 'onnx': pip install 'pfedes[onnx]'\n"
    assert capsys.readouterr().err == line
    assert not list(Path().iterdir())


@needs_onnx
def test_onnx(made: Path, personal: PersonalModel, tmp_path: Path) -> None:
    done = process("export", str(made), "--client", CLIENT, "--onnx", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "model.onnx"])
    (name, *_) = save_test_images(made, tmp_path / "images")
    shutil.copy(name, out / "image.png")
    code = snippets(out)[1] + "\nprint(probabilities[0].tolist())"
    found = json.loads(elsewhere(code, out))
    expected = {row.label: row.probability for row in personal.predict([name], top=10)}
    for label, probability in zip(personal.class_names, found, strict=True):
        assert probability == pytest.approx(expected[label], abs=onnx.TOLERANCE)


@needs_onnx
def test_onnx_of_two_networks(personal: PersonalModel, tmp_path: Path) -> None:
    own, small_one = (pfedes.export.model.CNN([3, 32, 32], 32, 50, width, 10) for width in (40, 20))
    fused = pfedes.export.model.Fused(own, small_one)
    pixels = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)
    assert onnx.write_onnx(fused, personal.prepare, pixels, tmp_path / "x.onnx") < onnx.TOLERANCE


@needs_onnx
def test_onnx_of_prototypes_and_a_wrong_file(
    personal: PersonalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = pfedes.export.model.CNN([3, 32, 32], 32, 50, 40, 10)
    nearest = pfedes.export.model.NearestPrototype(network, [2, 7, 8])
    torch.nn.init.uniform_(nearest.prototypes)
    pixels = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)
    path = tmp_path / "x.onnx"
    assert onnx.write_onnx(nearest, personal.prepare, pixels, path) < onnx.TOLERANCE
    with torch.no_grad():
        network.fc2.bias.add_(1)
    whole = onnx.Whole(nearest, personal.prepare)
    with pytest.raises(ModelError, match="does not give PyTorch's predictions"):
        onnx._difference(whole, path, pixels)
