"""Converts a participant's own data, in any supported form, to the federation's terms."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant
from pfedes.data import sources
from pfedes.data.dataset import Progress, silent
from pfedes.data.partition import PartitionConfig, Rows, Share, partition
from pfedes.data.preprocess import Preprocess
from pfedes.data.readers.npz import read_npz
from pfedes.data.sources import DataConfig
from pfedes.data.tables import (
    PICTURES,
    columns_of,
    groups_of,
    is_table,
    labels_of,
    prepared,
    rows_of,
    unlisted,
)
from pfedes.errors import DataError, PartitionError, kind_and_text, unknown
from pfedes.imports import is_own, own_function

SPLITS = ("train", "val", "test")
SHARES = PartitionConfig(kind="iid", clients=1)
"""The division of data without given splits: 8:1:1."""

EXPECTED = (
    "expected a mapping with 'train', 'test' and perhaps 'val', or (train, val, test); each "
    "(inputs, labels) as arrays, or a data set of such pairs"
)


@dataclass(frozen=True)
class Split:
    """Pixels (n, height, width, channels) of bytes, or numbers (n, *shape); labels of all."""

    inputs: NDArray[Any]
    labels: Rows

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class OwnData:
    """The data of one participant. Labels are numbers of the federation's classes."""

    train: Split
    val: Split
    test: Split
    kept_digest: str = ""  # of the whole, where only labels and sizes were kept
    preprocess: Preprocess | None = None
    """The preprocessing that made these inputs from rows of a table."""
    remarks: tuple[str, ...] = ()
    """Remarks on what is odd about the data, but not wrong."""

    @property
    def has_inputs(self) -> bool:
        return not self.kept_digest

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, channels first."""
        shape = self.train.inputs.shape[1:]
        return (shape[2], *shape[:2]) if self.train.inputs.dtype == np.uint8 else shape

    def digest(self) -> str:
        if self.kept_digest:
            return self.kept_digest
        sha = hashlib.sha256()
        for split in (self.train, self.val, self.test):
            sha.update(repr((split.inputs.shape, str(split.inputs.dtype))).encode())
            sha.update(np.ascontiguousarray(split.inputs).data)
            sha.update(split.labels.tobytes())
        return sha.hexdigest()


def own_data(
    participant: Participant,
    federation: FederationConfig,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> OwnData:
    """Loads a participant's data; `rng` divides what does not come divided."""
    preprocess, remarks = None, tuple[str, ...]()
    if is_table(participant.data):
        splits, preprocess, remarks = _from_table(participant, federation, rng)
    elif participant.data.startswith(PICTURES):
        parts = read_npz(participant.data)
        splits = _parts(participant, federation, parts, f"{participant.name}: data", rng)
    elif is_own(participant.data):
        splits = _from_function(participant, federation, rng)
    else:
        splits = _from_source(participant, federation, rng, progress)
    for name, split in zip(SPLITS, splits, strict=True):
        if not len(split) and name != "val":
            raise DataError(f"{participant.name}: the {name} data is empty: give it samples")
    shapes = {split.inputs.shape[1:] for split in splits if len(split)}
    if len(shapes) > 1:
        raise DataError(
            f"{participant.name}: inputs differ in shape between train, val and test: "
            f"{', '.join(map(str, sorted(shapes)))}; bring all to one"
        )
    train, val, test = splits
    return OwnData(train, val, test, preprocess=preprocess, remarks=remarks)


def class_names_of(participant: Participant) -> tuple[str, ...]:
    """The classes that a participant has of itself, where no federation has named any."""
    if participant.classes:
        return participant.classes
    if is_table(participant.data):
        table = columns_of(participant.data, participant.table)
        rows = rows_of(table, participant.table)
        return _mapped(participant, labels_of(table, rows, participant.table).tolist())
    if not is_own(participant.data):
        config = DataConfig(source=participant.data, image_size=participant.image_size)
        return _mapped(participant, sources.load(config).class_names)
    raise DataError(
        f"{participant.name}: the names of the classes are missing: set classes = [...], or give "
        "the federation's configuration"
    )


def _mapped(participant: Participant, names: Iterable[str]) -> tuple[str, ...]:
    """The federation's names of these classes, each once."""
    return tuple(sorted({participant.labels.get(name, name) for name in names}))


def _from_source(
    participant: Participant,
    federation: FederationConfig,
    rng: np.random.Generator,
    progress: Progress,
) -> list[Split]:
    """A folder, a data set of the hub, or one of ours; its own test set stays its test set."""
    config = DataConfig(
        source=participant.data,
        image_size=participant.image_size,
        channels=1 if federation.channels == 1 else 3,
    )
    dataset = sources.load(config, progress)
    rows, groups = _own_pictures(participant, config, len(dataset))
    names = participant.classes or dataset.class_names
    labels = _in_federation(participant, dataset.labels, names, federation)
    official = dataset.official_train < len(dataset)
    shares = SHARES.model_copy(update={"split": "official"}) if official else SHARES
    is_test = rows >= dataset.official_train
    if official and is_test.all() | ~is_test.any():
        part = "test" if is_test.all() else "training"
        raise DataError(
            f"{participant.name}: all its pictures are in the {part} part of {config.source}: "
            "it needs some in both"
        )
    share = _divided_by_group(participant, dataset.labels[rows], groups, rng, shares, is_test)
    return [
        Split(_with_channels(participant, dataset.images[part], federation), labels[part])
        for part in (rows[share.train], rows[share.val], rows[share.test])
    ]


def _own_pictures(
    participant: Participant, config: DataConfig, count: int
) -> tuple[Rows, list[str] | None]:
    """The participant's rows of a data set, and the group of each if groups stay together."""
    table = participant.table
    default = type(table)()
    for key, value in table:
        if key not in ("site", "only", "group") and value != getattr(default, key):
            raise DataError(f"{participant.name}: table.{key} is for csv and parquet, not pictures")
    if not (table.only or table.group):
        return np.arange(count), None
    try:
        columns = sources.about_rows(config, [name for name in (table.site, table.group) if name])
        rows = rows_of(columns, table)
        return np.array(rows), groups_of(columns, rows, table)
    except DataError as error:
        raise DataError(f"{participant.name}: {error}") from None


def _from_table(
    participant: Participant, federation: FederationConfig, rng: np.random.Generator
) -> tuple[list[Split], Preprocess, tuple[str, ...]]:
    """Rows of a CSV or parquet file; what is learned of its columns comes from training rows."""
    config = participant.table
    try:
        table = columns_of(participant.data, config)
        rows = rows_of(table, config)
        words, groups = labels_of(table, rows, config), groups_of(table, rows, config)
    except DataError as error:
        raise DataError(f"{participant.name}: {error}") from None
    _, numbers = np.unique(words, return_inverse=True)
    share = _divided_by_group(participant, numbers.astype(np.int64), groups, rng)
    try:
        preprocess, inputs = prepared(table, rows, [rows[n] for n in share.train], config)
    except DataError as error:
        raise DataError(f"{participant.name}: {error}") from None
    labels = _in_federation(participant, words, federation.classes, federation)
    parts = (share.train, share.val, share.test)
    splits = [Split(inputs[part], labels[part]) for part in parts]
    return splits, preprocess, unlisted(table, rows, config)


def _divided_by_group(
    participant: Participant,
    labels: Rows,
    groups: Sequence[str] | None,
    rng: np.random.Generator,
    shares: PartitionConfig = SHARES,
    is_test: NDArray[np.bool_] | None = None,
) -> Share:
    """The rows divided; or the groups, each of which goes to one split as a whole."""
    if groups is None:
        return _divided(participant, labels, shares, rng, is_test)
    names, first, whose = np.unique(groups, return_index=True, return_inverse=True)
    if is_test is not None and (torn := np.flatnonzero(is_test != is_test[first][whose])).size:
        raise DataError(
            f"{participant.name}: {str(names[whose[torn[0]]])!r} has pictures in the training and "
            "in the test part"
        )
    tests = None if is_test is None else is_test[first]
    share = _divided(participant, labels[first], shares, rng, tests)
    parts = (share.train, share.val, share.test)
    return Share(*(np.flatnonzero(np.isin(whose, part)) for part in parts))


def _from_function(
    participant: Participant, federation: FederationConfig, rng: np.random.Generator
) -> list[Split]:
    key = f"{participant.name}: data"
    function = own_function(participant.data, key)
    try:
        given = function()
    except Exception as error:  # it is the user's, and may raise anything
        raise DataError(f"{key} = {participant.data!r} failed: {kind_and_text(error)}") from None
    return _parts(participant, federation, _named(given, key), key, rng)


def _parts(
    participant: Participant,
    federation: FederationConfig,
    parts: Mapping[str, Any],
    key: str,
    rng: np.random.Generator,
) -> list[Split]:
    """Train, val and test of what came divided; without val, a ninth of train becomes it."""
    found = {
        name: _split(participant, federation, f"{key}, {name}", part)
        for name, part in parts.items()
    }
    if "val" not in found:
        whole = found["train"]
        shares = SHARES.model_copy(update={"split": (8 / 9, 0.0, 1 / 9)})
        share = _divided(participant, whole.labels, shares, rng)
        found["train"], found["val"] = (
            Split(whole.inputs[rows], whole.labels[rows]) for rows in (share.train, share.test)
        )
    return [found[name] for name in SPLITS]


def _divided(
    participant: Participant,
    labels: Rows,
    shares: PartitionConfig,
    rng: np.random.Generator,
    official_test: NDArray[np.bool_] | None = None,
) -> Share:
    try:
        (share,) = partition(labels, shares, rng, official_test)
    except PartitionError:  # its message is about clients, which a participant does not have
        raise DataError(
            f"{participant.name}: {len(labels)} samples are too few to be divided: give it more"
        ) from None
    return share


def _named(given: Any, key: str) -> dict[str, Any]:
    if isinstance(given, Mapping):
        if wrong := [name for name in given if name not in SPLITS]:
            raise DataError(f"{key}: {unknown('part', str(wrong[0]), SPLITS)}; {EXPECTED}")
        parts = dict(given)
    elif isinstance(given, tuple | list) and len(given) == len(SPLITS):
        parts = dict(zip(SPLITS, given, strict=True))
    else:
        raise DataError(f"{key} gave a {type(given).__name__}; {EXPECTED}")
    if missing := [name for name in ("train", "test") if name not in parts]:
        raise DataError(f"{key} has no {missing[0]!r}; {EXPECTED}")
    return parts


def _split(participant: Participant, federation: FederationConfig, key: str, part: Any) -> Split:
    inputs, labels = _pair(part, key)
    if len(inputs) != len(labels):
        raise DataError(f"{key}: {len(inputs)} inputs, but {len(labels)} labels: give one each")
    _check_rank(inputs, key)
    if inputs.dtype != np.uint8:
        inputs = _numbers(inputs, key)
    if not len(labels):
        labels = labels.astype(np.int64)  # of an empty list numpy makes fractions
    names = participant.classes or federation.classes
    mapped = _in_federation(participant, labels, names, federation)
    return Split(_with_channels(participant, inputs, federation), mapped)


def _check_rank(inputs: NDArray[Any], key: str) -> None:
    of_one = list(inputs.shape[1:])
    if not of_one and not len(inputs):
        raise DataError(f"{key} is empty: give it samples")
    if inputs.dtype == np.uint8 and len(of_one) not in (2, 3):
        raise DataError(
            f"{key}: bytes are pixels, [height, width] or with channels, and one input is "
            f"{of_one}: convert inputs that are not images to float"
        )
    if not of_one or 0 in of_one:
        raise DataError(
            f"{key}: one input is {of_one}: it needs numbers, [features], [channels, length] or "
            "[channels, height, width]"
        )


def _pair(part: Any, key: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if isinstance(part, tuple | list) and len(part) == 2 and not _is_pair(part[0]):
        return _array(part[0], f"{key} inputs"), _array(part[1], f"{key} labels")
    if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
        raise DataError(f"{key} is a {type(part).__name__}; {EXPECTED}")
    try:
        pairs = [part[index] for index in range(len(part))]
    except Exception as error:  # it is the user's, and may raise anything
        raise DataError(f"{key} cannot be read: {kind_and_text(error)}") from None
    for pair in pairs:
        if not _is_pair(pair):
            raise DataError(f"{key} holds a {type(pair).__name__} where (input, label) belongs")
    return (
        _array([x for x, _ in pairs], f"{key} inputs"),
        _array([y for _, y in pairs], f"{key} labels"),
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _array(values: Any, key: str) -> NDArray[Any]:
    try:
        if isinstance(values, Iterable) and not hasattr(values, "__array__"):
            values = [_plain(value) for value in values]
        found = np.asarray(_plain(values))
        if found.dtype == object:  # as tables keep words
            found = np.asarray(found.tolist())
    except ValueError:
        raise DataError(f"{key} differ in shape: bring all to one") from None
    except Exception as error:  # of the user's iterables, and of tensors that are no arrays
        raise DataError(f"{key} cannot be made an array: {kind_and_text(error)}") from None
    if found.dtype == object or found.ndim == 0:
        raise DataError(f"{key}: expected an array of numbers or names")
    return found


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _numbers(inputs: NDArray[Any], key: str) -> NDArray[np.float32]:
    if inputs.dtype.kind not in "fiub":
        raise DataError(f"{key}: inputs of type {inputs.dtype}: convert them to numbers")
    with np.errstate(over="ignore"):  # is found out at once
        found = inputs.astype(np.float32)
    if not np.isfinite(found).all():
        bad = int((~np.isfinite(found)).reshape(len(found), -1).any(axis=1).sum())
        raise DataError(
            f"{key}: {bad} of {len(found)} inputs hold NaN or infinity: fix or remove them"
        )
    return found


def _in_federation(
    participant: Participant,
    labels: NDArray[Any],
    names: Sequence[str],
    federation: FederationConfig,
) -> Rows:
    """Labels, numbers or names, as numbers of the federation's classes."""
    if labels.ndim != 1:
        raise DataError(f"{participant.name}: labels of shape {labels.shape}: give one each")
    if labels.dtype.kind in "US":
        words = _words(participant, labels)
        mine = sorted(set(words))
        numbers = np.searchsorted(mine, words)
    elif labels.dtype.kind in "iu":
        mine, numbers = list(names), labels
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(mine):
            raise DataError(
                f"{participant.name}: labels {numbers.min()}..{numbers.max()}, but {len(mine)} "
                "classes: name yours in the right order with classes = [...]"
            )
    else:
        raise DataError(
            f"{participant.name}: labels of type {labels.dtype}: use whole numbers or names"
        )
    places = {name: place for place, name in enumerate(federation.classes)}
    mine = [participant.labels.get(name, name) for name in mine]
    if foreign := [name for name in mine if name not in places]:
        remedy = "" if participant.labels else "; [labels] of the participant file maps names"
        raise DataError(f"{participant.name}: {unknown('class', str(foreign[0]), places)}{remedy}")
    table = np.array([places[name] for name in mine], np.int64)
    return table[numbers]


def _words(participant: Participant, labels: NDArray[Any]) -> NDArray[np.str_]:
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError:
        raise DataError(f"{participant.name}: labels are bytes that are not text") from None


def _with_channels(
    participant: Participant, inputs: NDArray[Any], federation: FederationConfig
) -> NDArray[Any]:
    """Images and signals with the federation's channels; grey is repeated."""
    pixels = inputs.dtype == np.uint8
    if pixels and inputs.ndim == 3:
        inputs = inputs[..., None]
    if pixels and inputs.ndim == 4 and inputs.shape[-1] > 4 >= inputs.shape[1]:
        inputs = inputs.transpose(0, 2, 3, 1)  # as torch has them
    if inputs.ndim == 2:
        return inputs  # a table has features, not channels
    axis = inputs.ndim - 1 if pixels else 1
    if inputs.shape[axis] == 1 and federation.channels > 1:
        inputs = inputs.repeat(federation.channels, axis)
    if inputs.shape[axis] != federation.channels:
        raise DataError(
            f"{participant.name}: inputs have {inputs.shape[axis]} channels, the federation "
            f"{federation.channels}: convert them, or agree on federation.channels"
        )
    return inputs
