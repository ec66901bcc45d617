"""What a user's function may return as data, and the line for what it may not."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pfedes import DataError
from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant
from pfedes.population.own_data import OwnData, own_data

PIXELS = np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8)
LABELS = [0, 1] * 10
Read = Callable[[object], OwnData]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads what a participant's function gives."""
    participant = Participant(name="ada", model="cnn5", data="mine:data")
    federation = FederationConfig(classes=("a", "b", "é"))

    def read(given: object) -> OwnData:
        mine = ModuleType("mine")
        mine.data = lambda: given  # type: ignore[attr-defined]  # of this module alone
        monkeypatch.setitem(sys.modules, "mine", mine)
        return own_data(participant, federation, np.random.default_rng(0))

    return read


def both(inputs: object, labels: object = LABELS) -> dict[str, object]:
    return {"train": (inputs, labels), "test": (inputs, labels)}


class Items:
    """A PyTorch map-style data set."""

    def __init__(self, item: Callable[[int], object], count: int = 20) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> object:
        return self.item(index)


class Frame:
    """A table with titles: iterating gives these, as pandas does."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __iter__(self) -> Any:
        return iter(["age", "pulse"])


def items(item: Callable[[int], object], count: int = 20) -> dict[str, object]:
    return {"train": Items(item, count), "test": Items(item, count)}


def broken() -> Any:
    yield PIXELS[0]
    raise OSError("disk")


WRONG: dict[str, tuple[object, str]] = {
    "one number each": (both(np.zeros(20)), r"one input is \[\]: it needs numbers, \[features\]"),
    "no numbers": (both(np.zeros((20, 0))), r"one input is \[0\]: it needs numbers"),
    "a table of bytes": (
        both(np.zeros((20, 5), np.uint8)),
        r"bytes are pixels, .* is \[5\]: convert",
    ),
    "volumes of bytes": (both(np.zeros((20, 4, 4, 4, 3), np.uint8)), "bytes are pixels"),
    "empty lists": (both([], []), "data, train is empty: give it samples"),
    "no items": (items(lambda i: None, 0), "data, train is empty: give it samples"),
    "one sample": (both(PIXELS[:1], [0]), "1 samples are too few to be divided"),
    "sparse": (both(torch.zeros(20, 4).to_sparse()), "inputs cannot be made an array: TypeError"),
    "half as wide": (both(torch.zeros(20, 4, dtype=torch.bfloat16)), "made an array: .*BFloat16"),
    "an iterable fails": (both(broken()), "inputs cannot be made an array: OSError: disk"),
    "too large": (both(np.full((20, 4), 1e300)), "20 of 20 inputs hold NaN or infinity"),
    "an item fails": (items(lambda i: 1 // 0), "train cannot be read: ZeroDivisionError"),
    "items of one": (items(lambda i: np.zeros(4)), r"holds a ndarray where \(input, label\) belon"),
    "items of nothing": (items(lambda i: None), r"holds a NoneType where \(input, label\) belongs"),
    "negative": (both(PIXELS, [-1, 0] * 10), r"labels -1\.\.0, but 3 classes"),
    "large": (
        both(PIXELS, np.array([2**63, 0] * 10, np.uint64)),
        r"labels 0\.\.9223372036854775808",
    ),
    "no text": (both(PIXELS, [b"\xff"] * 20), "labels are bytes that are not text"),
    "some missing": (both(PIXELS, [None, 1] * 10), "labels: expected an array of numbers or names"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_unusable_input_gets_one_line(given: object, message: str, read: Read) -> None:
    with pytest.raises(DataError, match=rf"^ada: .*{message}"):
        read(given)


def test_tables_and_their_words(read: Read) -> None:
    words = np.array(["a", "é"] * 10, object)
    data = read(both(Frame(np.ones((20, 2))), Frame(words)))
    assert data.shape == (2,)
    assert data.test.labels.tolist() == [0, 2] * 10
    encoded = np.array([word.encode() for word in words])
    assert read(both(PIXELS, encoded)).test.labels.tolist() == [0, 2] * 10


def test_items_of_any_kind(read: Read) -> None:
    pictures = read(items(lambda i: (Image.fromarray(PIXELS[i]), LABELS[i])))
    assert (pictures.test.inputs == PIXELS[..., None]).all()
    tracked = torch.ones(4, requires_grad=True)
    assert read(items(lambda i: (tracked, torch.tensor(i % 2)))).test.labels.tolist() == LABELS
    assert read(both([tracked] * 20)).shape == (4,)
