"""Reading what trackers wrote."""

import json
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK, HEADER = 2**15, 7


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file, which is a log of LevelDB's format behind a header."""
    data, at, parts = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece = data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if len(piece) < length:
            return  # the process was killed while it wrote
        parts = piece if kind in (1, 2) else parts + piece
        if kind in (1, 4):
            yield parts


Points = dict[str, list[tuple[int, float]]]


def wandb_messages(run: Path) -> Iterator[Any]:
    """All that the files of a run hold, as messages of wandb's own."""
    # Made when it is imported, for the installed protobuf: a type checker finds nothing in it.
    proto: Any = import_module("wandb.proto.wandb_internal_pb2")
    for path in sorted((run.parent / "wandb").glob("*run-*/run-*.wandb")):
        for data in wandb_records(path):
            record = proto.Record()
            record.ParseFromString(data)
            yield record


def wandb_points(run: Path) -> Points:
    """Every number that a run's files hold, by name, with its step."""
    found: Points = defaultdict(list)
    for record in wandb_messages(run):
        for item in record.history.item:
            name = item.key or ".".join(item.nested_key)
            if not name.startswith("_"):
                value = float(json.loads(item.value_json))
                found[name].append((record.history.step.num, value))
    return found


def tensorboard_points(run: Path) -> Points:
    """The same of TensorBoard's files, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
