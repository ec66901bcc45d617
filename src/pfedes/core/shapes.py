"""The shape of one input, without the batch: its rank says what kind of data it is."""

Shape = tuple[int, ...]
"""(channels, height, width) of images, (channels, length) of signals, (features,) of a row of a
table or an embedding."""

IMAGES, SIGNALS, ROWS = 3, 2, 1

_KINDS = {IMAGES: "images", SIGNALS: "signals", ROWS: "rows"}


def is_image(shape: Shape) -> bool:
    """Whether inputs of this shape are (channels, height, width)."""
    return len(shape) == IMAGES


def kind_of(shape: Shape) -> str:
    """images, signals, rows; or inputs, if it is something else."""
    return _KINDS.get(len(shape), "inputs")


def described(shape: Shape) -> str:
    """The inputs in words: `images with 3 channels`."""
    if len(shape) not in _KINDS:
        return f"of shape {list(shape)}"
    plural = "" if shape[0] == 1 else "s"
    what = f"of {shape[0]} number" if len(shape) == ROWS else f"with {shape[0]} channel"
    return f"{kind_of(shape)} {what}{plural}"
