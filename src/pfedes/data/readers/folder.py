"""Your own images: a folder for each class, with or without train/ and test/ above them."""

import logging
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.preprocess import read_csv
from pfedes.data.readers.images import DECODING, ENDINGS, check_shape, open_picture, pictures_below
from pfedes.errors import MOST_NAMES, DataError, unknown
from pfedes.files import reason
from pfedes.formatting import listed

PARTS = ("train", "test")
METADATA, PICTURE = "metadata.csv", "file_name"
"""The file with a line about each picture, and its column of paths, as Hugging Face reads it."""
NO_CLASSES = {"train", "val", "valid", "validation", "dev"}
"""Names of the folders of a divided data set; they are never all the classes."""

log = logging.getLogger(__name__)


def folder_recipe(path: Path, size: int, channels: int, progress: Progress) -> Recipe:
    """How to read PATH/CLASS/picture, or PATH/train/CLASS/picture and PATH/test/CLASS/picture.

    Classes are numbered by name, those of train/ and test/ together.
    """
    names, files = _pictures(path)
    everything = [entry for part in files for entry in part]
    height, width, _ = open_picture(everything[0][0], size, channels).shape

    def fill(images: Images, labels: Labels) -> None:
        for row, (picture, label) in enumerate(everything):
            pixels = open_picture(picture, size, channels)
            check_shape(pixels, (height, width, channels), str(picture))
            images[row], labels[row] = pixels, label
            progress(f"reading {path.name} (once)", row + 1, len(everything))

    return Recipe(
        name="folder",
        # With the names: labels are numbers, which other names would give another meaning.
        identity=[
            DECODING,
            *(size, channels),
            names,
            _fingerprint(path, [picture for picture, _ in everything]),
        ],
        rows=len(everything),
        shape=(height, width, channels),
        class_names=tuple(names),
        official_train=len(files[0]),
        fill=fill,
    )


def about_pictures(path: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """The rows of PATH/metadata.csv, in the order in which pictures are read."""
    file = path / METADATA
    try:
        table = read_csv(file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise DataError(f"{file}: {error}") from None
    for name in (PICTURE, *columns):
        if name not in table:
            raise DataError(f"{file}: {unknown('column', name, table)}")
    named = [word.strip() for word in table[PICTURE]]
    rows = {name: row for row, name in enumerate(named)}
    if len(rows) < len(named):
        twice = next(name for row, name in enumerate(named) if rows[name] != row)
        raise DataError(f"{file} has two lines about {twice}")
    _, files = _pictures(path)
    chosen = []
    for picture in (picture for part in files for picture, _ in part):
        name = picture.relative_to(path).as_posix()
        if name not in rows:
            raise DataError(f"{file} has no line about {name}")
        chosen.append(rows[name])
    return {name: [table[name][row] for row in chosen] for name in columns}


def _pictures(path: Path) -> tuple[list[str], list[list[tuple[Path, int]]]]:
    """The classes, and the pictures of each part with the numbers of their classes."""
    roots = _roots(path)
    names = sorted({name for root in roots for name in _folders(root)})
    if len(names) < 2:
        raise DataError(f"{path} needs a folder for each of at least two classes")
    found = [{name: pictures_below(root / name) for name in names} for root in roots]
    if not any(pictures for part in found for pictures in part.values()):
        raise DataError(f"{path} holds no pictures ({', '.join(sorted(ENDINGS))})")
    _check_classes(roots, found)
    files = [
        [(picture, label) for label, name in enumerate(names) for picture in part[name]]
        for part in found
    ]
    return names, files


def _roots(path: Path) -> list[Path]:
    """The directories with the folders of classes, that of training first."""
    names = _folders(path)
    if set(PARTS) <= names:
        if unused := names - set(PARTS):
            log.warning("%s: only train/ and test/ are read, not %s", path, _listed(unused))
        return [path / part for part in PARTS]
    if "train" in names <= NO_CLASSES:
        raise DataError(
            f"{path} has no test/ beside {_listed(names)}: rename one of them to test, or "
            f"give folder:{path}/train"
        )
    return [path]


def _folders(root: Path) -> set[str]:
    """Without hidden ones, which programs leave behind."""
    try:
        places = [place for place in root.iterdir() if place.is_dir()]
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {reason(error)}") from None
    names = {place.name for place in places if not place.name.startswith(".")}
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise DataError(
                f"the folder {name!r} in {root} has a name that is not valid text: rename it"
            )
    return names


def _check_classes(roots: list[Path], found: list[dict[str, list[Path]]]) -> None:
    """A class that nobody could learn would still be one in every number that names a class."""
    train, *test = ({name for name, pictures in part.items() if not pictures} for part in found)
    if train:
        raise DataError(
            f"{roots[0]} has no pictures of {_listed(train)}: add some, or remove every folder "
            "of that name"
        )
    if test and test[0]:
        log.warning("%s has no pictures of %s", roots[1], _listed(test[0]))


def _listed(names: set[str]) -> str:
    return listed([repr(name) for name in sorted(names)], MOST_NAMES)


def _fingerprint(root: Path, pictures: list[Path]) -> str:
    """Names, sizes and times of change: a replaced picture is noticed without reading all."""
    sha = sha256()
    for picture in pictures:
        try:
            about = picture.stat()
        except OSError as error:
            raise DataError(f"{picture} cannot be read: {reason(error)}") from None
        line = f"{picture.relative_to(root)} {about.st_size} {about.st_mtime_ns}\n"
        sha.update(line.encode(errors="surrogateescape"))
    return sha.hexdigest()
