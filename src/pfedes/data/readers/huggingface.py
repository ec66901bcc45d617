"""Image data sets of the Hugging Face hub, or a local copy of one, through `datasets`."""

from collections.abc import Iterator, Sequence
from typing import Any

from pfedes import files as place
from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.readers.images import DECODING, as_array, check_shape
from pfedes.errors import DataError, said, unknown


def hub_recipe(name: str, directory: str, size: int, channels: int, progress: Progress) -> Recipe:
    """How to decode `owner/name`; with a directory, the copy in it, and the hub is not asked."""
    used = _used(name, directory)
    train = used[0]
    image, label = _columns(name, train.features)
    for part in used:
        if missing := [column for column in (image, label) if column not in part.features]:
            raise DataError(f"the test part of {name} has no column {missing[0]!r}")
    total = sum(len(part) for part in used)
    first, _ = next(_decoded(name, train, image, label, (size, channels)))
    height, width, _ = first.shape

    def fill(images: Images, labels: Labels) -> None:
        row = 0
        for part in used:
            for pixels, number in _decoded(name, part, image, label, (size, channels)):
                check_shape(pixels, (height, width, channels), f"picture {row} of {name}")
                images[row], labels[row] = pixels, number
                row += 1
                progress(f"decoding {name} (once)", row, total)

    return Recipe(
        name="hf",
        identity=[DECODING, name, size, channels, *(part._fingerprint for part in used)],
        rows=total,
        shape=(height, width, channels),
        class_names=tuple(train.features[label].names),
        official_train=len(train),
        fill=fill,
    )


def about_examples(name: str, directory: str, columns: Sequence[str]) -> dict[str, list[str]]:
    """The words of columns about each picture, in the order in which pictures are read."""
    found: dict[str, list[str]] = {column: [] for column in columns}
    for part in _used(name, directory):
        for column, words in found.items():
            if column not in part.features:
                raise DataError(f"{name}: {unknown('column', column, part.features)}")
            names = getattr(part.features[column], "names", None)
            words += [
                "" if value is None else str(names[value] if names else value)
                for value in part[column]
            ]
    return found


def _used(name: str, directory: str) -> list[Any]:
    """The part to train with, and that to test with if there is one."""
    parts = _load(name, directory)
    train = parts.get("train")
    if train is None:
        raise DataError(f"{name} has no 'train' part; its parts are: {', '.join(parts)}")
    test = next((parts[key] for key in ("test", "validation") if key in parts), None)
    return [part for part in (train, test) if part is not None]


def _decoded(
    name: str, part: Any, image: str, label: str, form: tuple[int, int]
) -> Iterator[tuple[Images, int]]:
    """Pictures and labels, row by row; of the form asked for, a size and channels."""
    try:
        for row, example in enumerate(part):
            if example[image] is None or example[label] is None:
                raise DataError(f"row {row} of {name} has no picture or no label")
            yield as_array(example[image], *form), example[label]
    except DataError:
        raise
    except Exception as error:  # decoders raise exceptions of any kind
        raise DataError(f"{name} holds data that cannot be decoded: {said(error)}") from None


def _load(name: str, directory: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise DataError("data set 'hf' needs the extra 'hub': pip install 'pfedes[hub]'") from None
    where = str(place.directory(directory, "data directory")) if directory else ""
    datasets.disable_progress_bars()
    try:
        return dict(datasets.load_dataset(where or name))
    except Exception as error:  # its readers raise exceptions of any kind
        raise DataError(f"cannot load {name} from {where or 'the hub'}: {said(error)}") from None


def _columns(name: str, features: dict[str, Any]) -> tuple[str, str]:
    """The columns that hold the image and its label; CIFAR-100 has two labels, the fine one."""
    kinds = {column: type(feature).__name__ for column, feature in features.items()}
    images = [column for column, kind in kinds.items() if kind == "Image"]
    labels = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    labels.sort(key=lambda column: not column.startswith("fine"))
    if not images or not labels:
        raise DataError(f"{name} has no image with a class label; its columns are: {kinds}")
    return images[0], labels[0]
