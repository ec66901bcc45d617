"""Pictures of any kind as arrays of one shape."""

import logging
import os
import warnings
from pathlib import Path

import numpy as np
from PIL import EpsImagePlugin, Image, ImageOps

from pfedes.data.dataset import Images
from pfedes.errors import DataError
from pfedes.files import reason

BIG = 64_000_000  # pixels; more is an attack or a mistake
ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats of files with these endings.

Pillow looks at the contents, whatever the ending says, and would try some forty decoders.
"""

MODES = {1: "L", 3: "RGB"}
"""Channels that a picture can be brought to, and what Pillow calls it."""

DECODING = 3  # part of the cache's keys: pixels never meet those that were decoded otherwise

# No picture starts a program: of PostScript, whatever its file is called, Pillow would have
# Ghostscript make one. Also where another library opens it.
EpsImagePlugin.gs_binary = False

# Only users who set up logging see Pillow's remarks on odd files; errors stay one line.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def as_array(image: Image.Image, size: int | tuple[int, int], channels: int = 3) -> Images:
    """Pixels (height, width, channels), at the size asked for.

    A size is a height and a width, or a number for both; 0 = as it is. Grey becomes colour by
    repetition, 16 bits become 8, transparency is dropped; a picture is turned as its EXIF says.
    """
    if image.width * image.height > BIG:
        raise DataError(f"a picture of {image.width}x{image.height} is too large")
    kind = image.format  # which is lost when it is turned
    image = ImageOps.exif_transpose(image)  # cameras and phones note how they were held
    if channels not in MODES:
        raise DataError(f"a picture has 1 or 3 channels, not {channels}")
    image = _with_bytes(image, kind).convert(MODES[channels])
    height, width = (size, size) if isinstance(size, int) else size
    if height and image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels)


def _with_bytes(image: Image.Image, kind: str | None) -> Image.Image:
    """Keeps the upper 8 of 16 bits, as Pillow does for colours; it would cut grey off at 255."""
    # A PGM or PNG of 16 bits may have been widened. Other numbers have no agreed white, and one
    # found in each picture would make them of different brightness.
    if image.mode == "F" or (image.mode == "I" and kind not in ("PNG", "PPM")):
        raise DataError("its pixels have 32 bits: save it with 8 or 16 bits, where 0 is black")
    if not image.mode.startswith("I"):  # I;16, I;16B, ... differ in the order of bytes
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def open_picture(path: Path, size: int | tuple[int, int], channels: int = 3) -> Images:
    """Reads a picture from a file, resized and with the given number of channels.

    Args:
        path: The file, of any format that Pillow reads.
        size: Side length, or height and width, in pixels; 0 keeps the size.
        channels: 1 for grey, 3 for colour.

    Returns:
        Pixels, (height, width, channels).

    Raises:
        DataError: The file cannot be read as a picture; the message names it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd files that can still be read
            with Image.open(path, formats=FORMATS) as image:
                return as_array(image, size, channels)
    except Exception as error:  # decoders raise exceptions of any kind, even SyntaxError
        raise DataError(f"{path} cannot be read as a picture: {reason(error)}") from None


def pictures_below(place: Path) -> list[Path]:
    """All pictures in a directory and the directories in it, by their endings, sorted.

    Without hidden ones: thumbnails, checkpoints and the like are copies that programs made.
    """
    found: list[Path] = []
    if is_folder(place):
        for folder, inner, names in os.walk(place, onerror=_refuse):
            inner[:] = [name for name in inner if not name.startswith(".")]
            paths = [Path(folder, name) for name in names if not name.startswith(".")]
            found += [path for path in paths if path.suffix.lower() in ENDINGS]
    return sorted(found)


def is_folder(place: Path) -> bool:
    """Whether it is a folder; False if it cannot be accessed: opening it will say why."""
    try:
        return place.is_dir()
    except OSError:
        return False


def _refuse(error: OSError) -> None:
    """A folder that is forbidden must not pass for an empty one."""
    raise DataError(f"{error.filename} cannot be read: {reason(error)}") from None


def check_shape(pixels: Images, expected: tuple[int, int, int], where: str) -> None:
    if pixels.shape != expected:
        height, width, _ = pixels.shape
        raise DataError(
            f"{where} is {height}x{width}, the first is {expected[0]}x{expected[1]}: "
            "set data.image_size to bring all to one size"
        )
