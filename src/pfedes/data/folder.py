"""Your own images: a folder for each class, with or without train/ and test/ above them."""

from hashlib import sha256
from pathlib import Path

from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.pictures import ENDINGS, check_shape, open_picture, pictures_below
from pfedes.errors import DataError


def folder_recipe(path: Path, size: int, progress: Progress) -> Recipe:
    """How to read PATH/CLASS/picture, or PATH/train/CLASS/picture and PATH/test/CLASS/picture."""
    try:
        there = path.is_dir()
    except OSError as error:
        raise DataError(f"folder {str(path)!r:.80}: {error.strerror}") from None
    if not there:
        raise DataError(f"folder {str(path)!r} does not exist")
    official = (path / "train").is_dir() and (path / "test").is_dir()
    roots = [path / "train", path / "test"] if official else [path]
    names = sorted({place.name for root in roots for place in root.iterdir() if place.is_dir()})
    if len(names) < 2:
        raise DataError(f"{path} needs a folder for each of at least two classes")
    files = [
        [
            (picture, label)
            for label, name in enumerate(names)
            for picture in pictures_below(root / name)
        ]
        for root in roots
    ]
    everything = [entry for part in files for entry in part]
    if not everything:
        raise DataError(f"{path} holds no pictures ({', '.join(sorted(ENDINGS))})")
    first = open_picture(everything[0][0], size)
    height, width, channels = first.shape

    def fill(images: Images, labels: Labels) -> None:
        for row, (picture, label) in enumerate(everything):
            pixels = open_picture(picture, size)
            check_shape(pixels, (height, width, channels), str(picture))
            images[row], labels[row] = pixels, label
            progress(f"reading {path.name} (once)", row + 1, len(everything))

    return Recipe(
        name="folder",
        identity=[size, _fingerprint(path, [picture for picture, _ in everything])],
        rows=len(everything),
        shape=(height, width, channels),
        class_names=tuple(names),
        official_train=len(files[0]) if official else len(everything),
        fill=fill,
    )


def _fingerprint(root: Path, pictures: list[Path]) -> str:
    """Names, sizes and times of change: a replaced picture is noticed without reading all."""
    sha = sha256()
    for picture in pictures:
        about = picture.stat()
        sha.update(f"{picture.relative_to(root)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return sha.hexdigest()
