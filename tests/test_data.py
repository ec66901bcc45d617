"""Data sets come out right, are decoded once, and bad files are named."""

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from pfedes import ConfigError, DataError
from pfedes.core.augment import Augmentation, View
from pfedes.core.samples import Normaliser, Samples
from pfedes.data import sources
from pfedes.data.dataset import Dataset
from pfedes.data.readers import cifar_binary as binary
from pfedes.data.readers import parquet
from pfedes.data.readers.images import open_picture
from pfedes.data.sources import DataConfig
from pfedes.population.simulation import Simulation
from pictures import GREY, KINDS, cifar_binary


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
        ("digits:7", "'digits': argument '7', but it takes none"),
        ("folder", "'folder': argument '', but it needs one"),
        ("synthetic:sample=3", "did you mean 'samples'"),
        ("synthetic:samples=-3", "positive whole number, found '-3'"),
        (f"synthetic:samples={'9' * 5000}", "positive whole number, found '99"),
        (f"folder:{'x' * 5000}", "folder 'xx.*: File name too long"),
        ("synthetic:samples=3", "3 samples cannot cover 10 classes"),
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


IMAGE = {"bytes": _png(), "path": None}
UNLIKE = {
    "string": ({"label": ["cat"]}, "column 'label' holds string, expected whole numbers"),
    "fraction": ({"label": [1.5]}, "column 'label' holds double, expected whole numbers"),
    "no label": ({"label": pa.array([None], pa.int64())}, "holds 1 images without a label"),
    "no struct": ({"img": [_png()]}, "column 'img' holds binary, expected a field 'bytes'"),
    "no bytes": ({"img": [{"path": "x"}]}, "column 'img' holds struct<path: string>, expected"),
    "text": ({"img": [{"bytes": "x"}]}, "column 'img' holds struct<bytes: string>, expected"),
}


@pytest.mark.parametrize(("columns", "message"), UNLIKE.values(), ids=UNLIKE)
def test_parquet_of_other_types(columns: dict[str, object], message: str, tiny: Path) -> None:
    table = pa.table({"img": [IMAGE], "label": [1], **columns})
    pq.write_table(table, tiny / "test-00000-of-00001.parquet")
    with pytest.raises(DataError, match=rf"test-00000-of-00001.parquet.*{message}"):
        load("cifar10", tiny)


def test_a_damaged_page_is_no_fault_of_the_cache(tiny: Path) -> None:
    file = tiny / "test-00000-of-00001.parquet"
    noise = np.random.default_rng(0).bytes(9000)
    table = pa.table({"img": [{**IMAGE, "bytes": noise}], "label": [1]})
    pq.write_table(table, file, compression="gzip")
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes(8000) + whole[8100:])
    with pytest.raises(DataError, match=f"{file.name} is damaged"):
        load("cifar10", tiny)


def test_a_decoder_may_raise_anything(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise SyntaxError("broken PNG")

    _write(tiny / "test-00000-of-00001.parquet", [_png()] * 3, [0, 9, 9])
    monkeypatch.setattr(parquet, "as_array", stumble)
    with pytest.raises(DataError, match="image that cannot be decoded: broken PNG"):
        load("cifar10", tiny)


@pytest.mark.parametrize("names", ["null", '["a"]', "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "7"])
def test_names_of_classes_that_are_none(names: str, tiny: Path) -> None:
    about = f'{{"info": {{"features": {{"label": {{"names": {names}}}}}}}}}'
    table = pa.table({"img": [IMAGE], "label": [1]}).replace_schema_metadata({"huggingface": about})
    pq.write_table(table, tiny / "train-00000-of-00002.parquet")
    assert load("cifar10", tiny).class_names == tuple("0123456789")


def test_nothing_to_train_on(tiny: Path) -> None:
    for file in tiny.glob("train-*"):
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    with pytest.raises(DataError, match="cifar10 has no training samples"):
        load("cifar10", tiny)


def test_what_may_not_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in ("ant", "cat"):
        _picture(tmp_path / "pets" / label / "1.png", (9, 0, 0))

    def forbid(place: Path) -> None:
        """As the system would, if this is not run by who may do everything."""
        whole: dict[str, Callable[..., object]] = {"scandir": os.scandir, "listdir": os.listdir}
        for name, function in whole.items():

            def refuse(path: str, function: Callable[[str], object] = function) -> object:
                if Path(path) == place:
                    raise PermissionError(13, "Permission denied", str(path))
                return function(path)

            monkeypatch.setattr(os, name, refuse)

    forbid(tmp_path / "pets" / "cat")
    with pytest.raises(DataError, match=r"pets/cat cannot be read: Permission denied"):
        load(f"folder:{tmp_path / 'pets'}")
    monkeypatch.undo()
    forbid(tmp_path / "pets")
    with pytest.raises(DataError, match=r"folder '.*pets': Permission denied"):
        load(f"folder:{tmp_path / 'pets'}")
    with pytest.raises(DataError, match=r"data directory '.*pets': Permission denied"):
        load("cifar10", tmp_path / "pets")


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


# --- other sources ---


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("archived", [False, True])
def test_the_official_binary_version(name: str, archived: bool, tmp_path: Path) -> None:
    home = tmp_path / "data" / binary.FOLDER[name]
    pixels = cifar_binary(home, name, rows=7)
    if archived:
        with tarfile.open(tmp_path / "data" / binary.ARCHIVE[name], "w:gz") as tar:
            tar.add(home, binary.FOLDER[name])
        shutil.rmtree(home)
    data = load(name, tmp_path / "data")
    assert len(data) == len(pixels) == data.official_train + 7
    assert (data.images == pixels.transpose(0, 2, 3, 1)).all()
    assert data.class_names[3] == "class3"


def test_damaged_binary_files(tmp_path: Path) -> None:
    home = tmp_path / binary.FOLDER["cifar10"]
    cifar_binary(home, "cifar10", rows=3)
    (home / "data_batch_2.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"data_batch_2.bin has 3 bytes, no multiple of 3073"):
        load("cifar10", tmp_path)
    (home / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_2.bin cannot be read"):
        load("cifar10", tmp_path)
    shutil.copy(home / "data_batch_1.bin", home / "data_batch_2.bin")
    (home / "batches.meta.txt").write_bytes(b"\xff\n" * 10)
    with pytest.raises(DataError, match=r"batches.meta.txt is not text"):
        load("cifar10", tmp_path)
    shutil.rmtree(home)
    (tmp_path / binary.ARCHIVE["cifar10"]).write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz: data_batch_1.bin cannot be read"):
        load("cifar10", tmp_path)


def _picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    for label, colour in (("cat", (9, 0, 0)), ("dog", (0, 9, 0))):
        for number in range(3):
            _picture(tmp_path / "pets" / label / f"{number}.png", colour)
    data = load(f"folder:{tmp_path / 'pets'}")
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.images[4, 3, 3].tolist() == [0, 9, 0]
    assert data.shape == (3, 20, 20)
    before = data.digest
    _picture(tmp_path / "pets" / "dog" / "2.png", (1, 2, 3))
    assert load(f"folder:{tmp_path / 'pets'}").digest != before

    _picture(tmp_path / "pets" / "dog" / "3.png", (0, 0, 0), (20, 30))
    with pytest.raises(DataError, match=r"3.png is 30x20, the first is 20x20: set data.image_size"):
        load(f"folder:{tmp_path / 'pets'}")
    sized = DataConfig(source=f"folder:{tmp_path / 'pets'}", image_size=16)
    assert sources.load(sized).shape == (3, 16, 16)
    (tmp_path / "pets" / "dog" / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"3.png cannot be read as a picture"):
        load(f"folder:{tmp_path / 'pets'}")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_is_the_same_grey_in_any_kind_of_picture(
    name: str, channels: int, tmp_path: Path
) -> None:
    KINDS[name].save(tmp_path / name)
    pixels = open_picture(tmp_path / name, 0, channels)
    assert pixels.dtype == np.uint8
    assert (pixels == GREY[..., None]).all()


def test_black_and_white_are_all_of_one_bit(tmp_path: Path) -> None:
    Image.fromarray(GREY > 100).save(tmp_path / "x.png")
    assert open_picture(tmp_path / "x.png", 0, 1).ravel().tolist() == [0, 0, 255, 255]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_numbers_without_an_agreed_white_are_refused(dtype: type, tmp_path: Path) -> None:
    Image.fromarray(GREY.astype(dtype)).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x.tif cannot be read as a picture: .* 32 bits: save"):
        open_picture(tmp_path / "x.tif", 0)


def test_a_folder_with_a_test_set(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("test", 2)):
        for label in ("a", "b"):
            for number in range(count):
                _picture(tmp_path / "set" / part / label / f"{number}.png", (number, 0, 0))
    data = load(f"folder:{tmp_path / 'set'}")
    assert (len(data), data.official_train) == (12, 8)
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [0] * 2 + [1] * 2


def test_an_empty_folder_is_no_class_and_renames_none(tmp_path: Path) -> None:
    for label in ("ant", "cat"):
        _picture(tmp_path / "pets" / label / "1.png", (9, 0, 0))
    source = f"folder:{tmp_path / 'pets'}"
    assert load(source).class_names == ("ant", "cat")
    (tmp_path / "pets" / "bat").mkdir()
    with pytest.raises(DataError, match=r"pets has no pictures of 'bat': add some, or remove"):
        load(source)
    (tmp_path / "pets" / "bat").rmdir()
    (tmp_path / "pets" / ".thumbnails").mkdir()
    _picture(tmp_path / "pets" / "ant" / ".thumbnails" / "1.png", (9, 0, 0))
    data = load(source)
    assert (data.class_names, data.labels.tolist()) == (("ant", "cat"), [0, 1])


def test_odd_files_among_the_pictures(tmp_path: Path) -> None:
    home = tmp_path / "pets"
    for label in ("ant", "cat"):
        _picture(home / label / "1.png", (9, 0, 0))
    (home / "ant" / "folder.png").mkdir()
    _picture(home / "ant" / os.fsdecode(b"\xff.png"), (9, 0, 0))
    assert load(f"folder:{home}").labels.tolist() == [0, 0, 1]
    (home / "ant" / "link.png").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"link.png cannot be read: No such file"):
        load(f"folder:{home}")
    (home / os.fsdecode(b"\xff")).mkdir()
    with pytest.raises(
        DataError, match=r"the folder '.*udcff' in .*pets has a name that is not valid tex"
    ):
        load(f"folder:{home}")


def test_train_and_test_with_different_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "set"
    for place in ("train/ant", "train/bat", "train/cat", "test/cat", "val/cat"):
        _picture(home / place / "1.png", (9, 0, 0))
    data = load(f"folder:{home}")
    assert data.class_names == ("ant", "bat", "cat")
    assert data.labels.tolist() == [0, 1, 2, 2]
    assert [record.getMessage() for record in caplog.records] == [
        f"{home}: only train/ and test/ are read, not 'val'",
        f"{home / 'test'} has no pictures of 'ant', 'bat'",
    ]
    _picture(home / "test" / "Bat" / "1.png", (9, 0, 0))
    with pytest.raises(DataError, match=r"set/train has no pictures of 'Bat'"):
        load(f"folder:{home}")
    shutil.rmtree(home / "test")
    with pytest.raises(DataError, match=r"no test/ beside 'train', 'val': .* folder:.*set/train"):
        load(f"folder:{home}")


@pytest.mark.parametrize(
    ("place", "message"),
    [("nowhere", "does not exist"), (".", "needs a folder for each of at least two classes")],
)
def test_unusable_folders_are_refused(place: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(f"folder:{tmp_path / place}")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        load(f"folder:{tmp_path}")


def test_a_local_copy_of_a_hub_data_set(tiny: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hub'")
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    home = tmp_path / "copy"
    home.mkdir()
    for part, labels in (("train", [0, 1, 1]), ("test", [1])):
        pictures = [Image.new("RGB", (24, 24), (label, 7, 7)) for label in labels]
        rows = {"img": pictures, "label": labels}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(home / f"{part}.parquet")
    data = load("hf:somebody/pets", home)
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [0, 1, 1, 1]
    assert data.official_train == 3
    assert data.images[3, 0, 0].tolist() == [1, 7, 7]
    with pytest.raises(DataError, match="does not exist"):
        load("hf:somebody/pets", tmp_path / "nowhere")
    (tmp_path / "bad").mkdir()
    with pytest.raises(DataError, match="cannot load somebody/pets from"):
        load("hf:somebody/pets", tmp_path / "bad")


def test_unusable_copies_of_hub_data_sets_are_refused(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hub'")
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    image = {"bytes": _png(), "path": None}
    for number, (images, labels, message) in enumerate(
        [
            ([], [], "cannot load a/b from"),
            ([image, None], [0, 1], "row 1 of a/b has no picture or no label"),
            ([image, image], [0, None], "row 1 of a/b has no picture or no label"),
            (
                [image, {"bytes": b"none", "path": None}],
                [0, 1],
                "a/b holds data that cannot be decoded",
            ),
        ]
    ):
        home = tmp_path / str(number)
        home.mkdir()
        rows = {"img": images, "label": labels}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(home / "train.parquet")
        with pytest.raises(DataError, match=message):
            load("hf:a/b", home)
    with pytest.raises(DataError, match=r"data directory 'xx.*: File name too long"):
        load("hf:a/b", "x" * 5000)


def test_the_real_cifar_through_the_hub_reader(cifar: Path, tmp_path: Path) -> None:
    """The reader for any hub data set finds what the one for CIFAR finds."""
    pytest.importorskip("datasets", reason="needs the extra 'hub'")
    home = tmp_path / "copy"
    home.mkdir()
    for part in ("train", "test"):
        table = pq.read_table(cifar / "cifar100" / f"{part}-00000-of-00001.parquet").slice(0, 40)
        pq.write_table(table, home / f"{part}-00000-of-00001.parquet")
    data, whole = load("hf:uoft-cs/cifar100", home), load("cifar100", home)
    assert (data.images == whole.images).all()
    assert (data.labels == whole.labels).all()
    assert data.class_names == whole.class_names
    assert "apple" in data.class_names


# --- augmentation ---


def marked(count: int = 64) -> torch.Tensor:
    """Images whose every pixel is different."""
    return torch.arange(1, 1 + 8 * 8 * 3).to(torch.uint8).reshape(1, 8, 8, 3).repeat(count, 1, 1, 1)


def augmentation(seed: int = 0) -> Augmentation:
    return Augmentation(torch.Generator().manual_seed(seed))


def test_flips_mirror_about_half() -> None:
    pixels = marked()
    flipped = augmentation().flip(View.whole(pixels)).of(pixels)
    mirrored = (flipped == pixels.flip(2)).flatten(1).all(1)
    same = (flipped == pixels).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert 16 < mirrored.sum() < 48


def test_crops_shift_by_up_to_four() -> None:
    pixels = marked(200)
    cropped = augmentation().crop(View.whole(pixels)).of(pixels)
    padded = torch.zeros(16, 16, 3, dtype=torch.uint8)
    padded[4:12, 4:12] = pixels[0]
    windows = {
        (top, left): padded[top : top + 8, left : left + 8] for top in range(9) for left in range(9)
    }
    found = set()
    for image in cropped:
        (place,) = [key for key, window in windows.items() if torch.equal(image, window)]
        found.add(place)
    assert {top for top, _ in found} == set(range(9))
    assert {left for _, left in found} == set(range(9))


def test_erasing_blackens_one_rectangle_of_about_half() -> None:
    pixels = torch.full((400, 32, 32, 3), 9, dtype=torch.uint8)
    erased = augmentation().erase(View.whole(pixels)).of(pixels) == 0
    touched = erased.flatten(1).any(1)
    assert 150 < touched.sum() < 250
    for hole in erased[touched][:50, :, :, 0]:
        rows, columns = hole.any(1).nonzero().flatten(), hole.any(0).nonzero().flatten()
        box = hole[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert box.all()
        assert 0.01 < box.numel() / 1024 < 0.36


def test_only_training_images_are_augmented_and_the_stream_decides() -> None:
    samples = Samples(marked(8), torch.arange(8), Normaliser.of([0.0] * 3, [1.0] * 3))

    def epoch(seed: int | None) -> torch.Tensor:
        augment = None if seed is None else augmentation(seed)
        order = torch.Generator().manual_seed(5)
        return torch.cat([batch.x for batch in samples.shuffled(4, order, augment)])

    assert torch.equal(epoch(1), epoch(1))
    assert not torch.equal(epoch(1), epoch(2))
    assert not torch.equal(epoch(1), epoch(None))
    assert torch.equal(torch.cat([b.x for b in samples.in_order(4)]), samples.batch(slice(None)).x)
