"""Pictures of any kind as arrays of one shape."""

from pathlib import Path

import numpy as np
from PIL import Image

from pfedes.data.dataset import Images
from pfedes.errors import DataError

BIG = 64_000_000  # pixels; more is an attack or a mistake


def as_array(image: Image.Image, size: int) -> Images:
    """RGB pixels, at the size asked for (0 = as it is)."""
    if image.width * image.height > BIG:
        raise DataError(f"a picture of {image.width}x{image.height} is too large")
    image = image.convert("RGB")
    if size and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def open_picture(path: Path, size: int) -> Images:
    try:
        with Image.open(path) as image:
            return as_array(image, size)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from None


def check_shape(pixels: Images, expected: tuple[int, int, int], where: str) -> None:
    if pixels.shape != expected:
        height, width, _ = pixels.shape
        raise DataError(
            f"{where} is {height}x{width}, the first is {expected[0]}x{expected[1]}: "
            "set data.image_size to bring all to one size"
        )
