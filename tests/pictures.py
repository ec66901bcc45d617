"""Pictures and data sets as files."""

from pathlib import Path

import numpy as np
from PIL import Image

from pfedes.data.readers import cifar_binary as binary
from pfedes.data.readers import parquet

GREY = np.array([[0, 17, 128, 255]], np.uint8)
KINDS = {
    "L.png": Image.fromarray(GREY),
    "16 bits.png": Image.fromarray(GREY * np.uint16(257)),
    "16 bits.tif": Image.fromarray(GREY * np.uint16(257)),
    "16 bits.pgm": Image.fromarray(GREY * np.uint16(257)),
    "palette.png": Image.fromarray(GREY).convert("P"),
    "alpha.png": Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(GREY)]),
    "clear.png": Image.merge("RGBA", [Image.fromarray(GREY)] * 4),
    "CMYK.tif": Image.fromarray(GREY).convert("CMYK"),
}


def cifar_binary(home: Path, name: str, rows: int) -> np.ndarray:
    """The binary version of CIFAR with so many rows a file; returns all pixels, channels first."""
    rng = np.random.default_rng(0)
    classes = parquet.CLASSES[name]
    home.mkdir(parents=True)
    pixels = []
    for file in [*binary.TRAIN[name], binary.TEST[name]]:
        block = rng.integers(0, 256, (rows, binary.LABELS[name] + binary.PIXELS), np.uint8)
        block[:, : binary.LABELS[name]] = rng.integers(0, classes, (rows, 1))
        (home / file).write_bytes(block.tobytes())
        pixels.append(block[:, binary.LABELS[name] :].reshape(-1, 3, 32, 32))
    names = "\n".join(f"class{number}" for number in range(classes))
    (home / binary.NAMES[name]).write_text(names + "\n\n")
    return np.concatenate(pixels)


def picture(side: int = 8) -> str:
    Image.fromarray(np.full((side, side), 100, np.uint8)).save("picture.png")
    return "picture.png"
