"""Data sets come out right, are decoded once, and bad files are named."""

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from pfedes import ConfigError, DataError
from pfedes.data import sources
from pfedes.data.dataset import Dataset
from pfedes.data.samples import Normaliser, Samples
from pfedes.data.sources import DataConfig
from pfedes.simulation import Simulation


def load(source: str, directory: Path | str = "") -> Dataset:
    return sources.load(DataConfig(source=source, dir=str(directory)))


def test_digits_are_scikit_learns_digits() -> None:
    digits = load("digits")
    assert digits.shape == (3, 32, 32)
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    from sklearn.datasets import load_digits

    small = digits.images[:, ::4, ::4, 1] * (16 / 255)
    assert np.allclose(small, load_digits().images, atol=0.05)
    pixels = digits.images / 255
    assert digits.mean[0] == pytest.approx(pixels.mean())
    assert digits.std[0] == pytest.approx(pixels.std())


def test_synthetic_data_of_any_size() -> None:
    data = load("synthetic:samples=130,classes=13,size=20,channels=1")
    assert data.shape == (1, 20, 20)
    assert np.bincount(data.labels).tolist() == [10] * 13
    assert len(load("synthetic")) == 10_000


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("cifar", "unknown data set 'cifar'; did you mean 'cifar10'"),
        ("digits:7", "'digits' takes no argument"),
        ("synthetic:sample=3", "did you mean 'samples'"),
        ("synthetic:samples=-3", "positive whole number, found '-3'"),
        ("synthetic:samples=3", "3 samples cannot show 10 classes"),
    ],
)
def test_wrong_names(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(source)


def test_the_second_opening_decodes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFEDES_CACHE", str(tmp_path / "cache"))
    first = load("synthetic:samples=50")
    calls: list[int] = []
    again = sources.load(
        DataConfig(source="synthetic:samples=50"), lambda *progress: calls.append(1)
    )
    assert not calls
    assert isinstance(again.images, np.memmap)
    assert again.digest == first.digest
    assert [path.name[:10] for path in (tmp_path / "cache").iterdir()] == ["synthetic-"]


def test_a_damaged_cache_says_what_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFEDES_CACHE", str(tmp_path))
    load("digits")
    (home,) = tmp_path.iterdir()
    (home / "images.npy").write_bytes(b"")
    with pytest.raises(DataError, match=f"{home.name} is damaged .* remove that directory"):
        load("digits")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PFEDES_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="cannot write the data cache"):
        load("digits")


def test_normalisation_by_hand() -> None:
    normalise = Normaliser.of([0.5, 0.0], [0.25, 0.0])
    pixels = torch.tensor([[[[255, 0]], [[0, 51]]]], dtype=torch.uint8)  # 1 x 2 x 1 x 2 channels
    assert normalise(pixels)[0, 0, :, 0].tolist() == pytest.approx([2.0, -2.0])
    assert normalise(pixels)[0, 1, :, 0].tolist() == pytest.approx([0.0, 0.2])


def test_an_epoch_sees_every_sample_once() -> None:
    samples = Samples(
        torch.arange(10, dtype=torch.uint8).reshape(10, 1, 1, 1),
        torch.arange(10),
        Normaliser.of([0.0], [1 / 255]),
    )
    batches = list(samples.shuffled(4, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    labels = torch.cat([batch.y for batch in batches])
    assert sorted(labels.tolist()) == list(range(10))
    assert labels.tolist() != list(range(10))
    assert torch.cat([batch.x for batch in batches]).flatten().tolist() == labels.tolist()


def test_imagenet_normalisation_needs_three_channels() -> None:
    from pfedes import configure

    config = configure(data="synthetic:channels=1", settings={"data.normalise": "imagenet"})
    with pytest.raises(ConfigError, match="is for 3 channels, the data has 1"):
        Simulation(config)


def _write(path: Path, images: list[bytes], labels: list[int], **columns: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    img = [{"bytes": blob, "path": None} for blob in images]
    pq.write_table(pa.table({"img": img, "label": labels, **columns}), path)


def _png(size: int = 32) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (1, 2, 3)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A CIFAR-10 of twelve images in the hub's layout."""
    home = tmp_path / "hub" / "cifar10" / "plain_text"
    _write(home / "train-00000-of-00002.parquet", [_png()] * 5, [0, 1, 2, 3, 4])
    _write(home / "train-00001-of-00002.parquet", [_png()] * 5, [5, 6, 7, 8, 9])
    _write(home / "test-00000-of-00001.parquet", [_png()] * 2, [0, 9])
    return home


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_the_directory_may_be_the_data_sets_own_or_its_parent(tiny: Path, place: str) -> None:
    data = load("cifar10", tiny / place)
    assert data.labels.tolist() == [*range(10), 0, 9]
    assert data.official_train == 10
    assert data.images[11, 5, 5].tolist() == [1, 2, 3]


def test_bad_files_are_named(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PFEDES_CACHE", str(tmp_path / "cache"))
    test_file = tiny / "test-00000-of-00001.parquet"
    good = test_file.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(DataError, match=message):
            load("cifar10", tiny)

    test_file.write_bytes(good[:-20])
    refused(f"{test_file.name} is not a readable parquet file")
    test_file.write_bytes(b"not parquet at all")
    refused(f"{test_file.name} is not a readable parquet file")
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), test_file)
    refused("no column 'img'; its columns are: text, label")
    _write(test_file, [b"no image"], [1])
    refused("image that cannot be decoded")
    _write(test_file, [_png(28)], [1])
    refused(r"image of \(28, 28, 3\)")
    _write(test_file, [_png()], [10])
    refused(r"labels 0..10, expected 0..9")
    test_file.unlink()
    refused("has no test-")
    shutil.rmtree(tiny)
    tiny.mkdir()
    refused("no cifar10 in")
    assert not list((tmp_path / "cache").iterdir())  # nothing half-made stays


def test_no_directory_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PFEDES_DATA", raising=False)
    with pytest.raises(DataError, match="'cifar10' needs its files"):
        load("cifar10")
    with pytest.raises(DataError, match="does not exist"):
        load("cifar10", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "first", "mean", "std"),
    [
        (
            "cifar10",
            [6, 9, 9, 4, 1, 1, 2, 7, 8, 3],
            [0.4914, 0.4822, 0.4465],
            [0.2470, 0.2435, 0.2616],
        ),
        (
            "cifar100",
            [19, 29, 0, 11, 1, 86, 90, 28, 23, 31],
            [0.5071, 0.4865, 0.4409],
            [0.2673, 0.2564, 0.2762],
        ),
    ],
)
def test_real_cifar(
    cifar: Path, name: str, first: list[int], mean: list[float], std: list[float]
) -> None:
    data = load(name, cifar)
    assert len(data) == 60_000
    assert data.official_train == 50_000
    assert data.labels[:10].tolist() == first
    assert data.mean == pytest.approx(mean, abs=5e-5)
    assert data.std == pytest.approx(std, abs=5e-5)
    assert len(data.class_names) == len(np.unique(data.labels)) == int(name.removeprefix("cifar"))
    table = pq.read_table(cifar / name / "test-00000-of-00001.parquet")
    image = Image.open(io.BytesIO(table["img"][1234].as_py()["bytes"]))
    assert (np.asarray(image) == data.images[50_000 + 1234]).all()
