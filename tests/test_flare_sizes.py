"""Messages and cards that are too large are turned away before memory is taken for them."""

import json
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

import msgpack  # type: ignore[import-untyped]
import numpy as np
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.fuel.f3.streaming.blob_streamer import BlobHandler
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.class_loader import get_class_name
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.fobs import dots, lobs
from nvflare.fuel.utils.fobs import fobs as registry
from nvflare.fuel.utils.fobs.datum import Datum, DatumManager
from nvflare.fuel.utils.fobs.decomposer import DataClassDecomposer

from pfedes import Card, WireError, configure
from pfedes.core.payload import Payload
from pfedes.deploy import sizes
from pfedes.deploy.coordinator.enrolment import Enrolment
from pfedes.deploy.hardening.arrays import refuse_arrays
from pfedes.deploy.hardening.attachments import refuse_files
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from running import small


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in FLARE's processes, with the smallest limit; FLARE has begun before it."""
    monkeypatch.setattr(ConfigService, "_var_values", {})  # what other tests made it remember
    for name in ("_decomposers", "_dot_handlers"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    # Another test of this process may have refused arrays already.
    registry._decomposers.pop(get_class_name(np.ndarray), None)
    registry._dot_handlers.pop(dots.NUMPY_DOWNLOAD, None)
    fobs.register(numpy_decomposers.NumpyArrayDecomposer)
    for name, value in sizes.size_limits(1).items():
        monkeypatch.setenv(name, value)


def test_flare_reads_the_limit_of_messages_in_pieces(limited: None) -> None:
    assert BlobHandler(print).max_blob_size == sizes.MEBIBYTE


def test_arrays_are_neither_sent_nor_taken_in_nor_fetched(limited: None) -> None:
    array = fobs.dumps({"a": np.ones(3)})
    fetched = json.dumps({"fqcn": "elsewhere", "ref_id": "1"})
    assert fobs.loads(array)["a"].sum() == 3
    refuse_arrays()
    with pytest.raises(WireError, match="not taken in"):
        fobs.loads(array)
    with pytest.raises(RuntimeError, match="Exception serializing"):
        fobs.dumps({"a": np.ones(3)})
    handler = fobs.get_dot_handler(dots.NUMPY_DOWNLOAD)
    with pytest.raises(WireError, match="not fetched"):
        handler.process_datum(fetched, None)
    # What we send is bytes, and passes.
    message = Payload({}, {"kind": "hello"})
    assert to_payload(fobs.loads(fobs.dumps(to_shareable(message)))).meta == message.meta


def attached(tmp_path: Path) -> bytes:
    """A message that has a file with it, as FLARE sends it."""
    file = tmp_path / "sent"
    file.write_text("anything")
    data: bytes = fobs.dumps({"file": Datum.file_datum(str(file))})
    return data


def naming(file: Path) -> bytes:
    """A message of which a part names a file of the receiver's."""
    about = {"datum_id": str(uuid.uuid4()), "datum_type": "any", "dot": 0, "value": str(file)}
    part = {
        registry.FOBS_TYPE: get_class_name(Datum),
        registry.FOBS_DATA: {"data": about},
        registry.FOBS_DECOMPOSER: get_class_name(DataClassDecomposer),
    }
    main = msgpack.packb({"cookie": part})
    head: bytes = lobs.HEADER_STRUCT.pack(lobs.MARKER_MAIN, 0, len(main))
    return head + bytes(main)


def test_no_file_leaves_or_comes_with_a_message(
    limited: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site sends the cookies of a task back: one that names its key must not bring the key."""
    received = tmp_path / "received"
    received.mkdir()
    monkeypatch.setattr(DatumManager, "add_datum", DatumManager.add_datum)
    monkeypatch.setattr(lobs, "get_datum_dir", lambda: str(received))
    fobs.register_data_classes(Datum)  # as FLARE does
    key = tmp_path / "site.key"
    key.write_text("the key")
    told = naming(key)
    stolen = fobs.loads(told)
    assert b"the key" in fobs.dumps(stolen)  # without us, the sender gets it
    message = attached(tmp_path)
    assert fobs.loads(message)["file"].value.startswith(str(received))
    before = len(list(received.iterdir()))

    refuse_files()
    with pytest.raises(WireError, match="not taken in"):
        fobs.loads(told)
    with pytest.raises(WireError, match="not taken in"):
        fobs.loads(message)
    assert len(list(received.iterdir())) == before
    for part in (stolen, {"file": Datum.file_datum(str(key))}):
        with pytest.raises(WireError, match="not attached"):
            fobs.dumps(part)
    # Long texts and bytes, which FLARE attaches by itself, still travel.
    long = {"text": "x" * 2**24, "bytes": b"y" * 2**24}
    assert fobs.loads(fobs.dumps(long)) == long


@pytest.mark.parametrize("method", sorted(METHODS))
def test_how_large_messages_may_be_is_known_without_a_network(method: str) -> None:
    """The same as those of the networks that would be built."""
    import torch

    simulation = Simulation(small(method, models__pool=["cnn5"]))
    card = simulation.population.card("client-0000", simulation.method.needs)
    ctx = simulation.context(1)
    with torch.device("meta"):
        wire = Simulation(simulation.config).method.allowed(card, ctx)
    assert wire == simulation.method.allowed(card, ctx)
    expected = {"cnn5": sum(p.numel() * 4 for p in simulation.population.untrained(
        "client-0000").state_dict().values())}  # fmt: skip
    if method == "fedavg":
        assert wire.up.most_bytes == wire.down.most_bytes == expected["cnn5"]
    if method == "pfedes":
        assert wire.up.most_bytes == 443 * 4


CLASSES = ["a", "b"]


def enrolment(method: str, **settings: Any) -> Enrolment:
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    base = {"federation.participants": ["eve"], "federation.classes": CLASSES,
            "models.pool": ["cnn5"]}  # fmt: skip
    return Enrolment(Simulation(configure(method=method, settings={**base, **chosen})), {})


def card_of(enrol: Enrolment, **changes: Any) -> Card:
    card = Card("eve", 10, (3, 32, 32))
    needs: dict[str, Any] = {"parameters": {}, "classes": {0: 10}, "width": 500}
    known = {key: value for key, value in needs.items() if key in enrol._needs}
    if "labels" in enrol._needs:
        known.setdefault("classes", {0: 1})
    return enrol.card("eve", json.dumps(asdict(replace(card, **(known | changes)))))


@pytest.mark.parametrize(
    ("method", "changes", "why"),
    [
        ("pfedes", {}, None),
        ("pfedes", {"shape": (3, 2**12, 2**12)}, "more than 16,777,216 numbers"),
        ("pfedes", {"shape": (1,) * 9}, "more than 16,777,216 numbers"),
        ("pfedes", {"samples": 10**12 + 1}, "more than 1,000,000,000,000 samples"),
        ("fml", {}, None),
        ("fml", {"shape": (3, 2000, 2000)}, "its messages would have [0-9,.]+ MiB, more than"),
        ("fml", {"shape": (3, 1, 1)}, "the method has no messages for it"),
        ("fedavg", {"parameters": {"w": ["float32", [2**40]]}}, "its messages would have"),
        ("fedavg", {"parameters": {"w": ["load", [2]]}}, "the method has no messages for it"),
        ("fedavg", {"parameters": {"w" * 301: ["float32", [2]]}}, "more than 300 characters"),
        ("fd", {"classes": {0: 9}}, "do not add up to its number of samples"),
        ("fd", {"classes": {2: 10}}, "classes that the federation does not have"),
        ("fedproto", {"width": 2**24}, "its messages would have"),
        ("fedgh", {}, None),
        ("fedgh", {"classes": None}, "does not have exactly the entries"),
        ("fedgh", {"classes": {0: 10}}, "does not have exactly the entries"),
        ("fedgh", {"classes": {2: 1}}, "classes that the federation does not have"),
        ("pfedes", {"classes": {0: 10}}, "does not have exactly the entries"),
    ],
)
def test_impossible_cards_are_refused(
    method: str, changes: dict[str, Any], why: str | None
) -> None:
    enrol = enrolment(method)
    if why is None:
        assert card_of(enrol, **changes).name == "eve"
        return
    with pytest.raises(WireError, match=why):
        card_of(enrol, **changes)


def test_a_card_that_is_too_long() -> None:
    for text in (None, 7, "x" * 1_000_001):
        with pytest.raises(WireError, match="not a text of at most 1,000,000 characters"):
            enrolment("pfedes").card("eve", text)


def test_the_limit_can_be_raised(tmp_path: Path) -> None:
    changes = {"parameters": {"w": ["float32", [2**26]]}}  # 256 MiB
    with pytest.raises(WireError, match=r"256\.0 MiB, more than federation.max_message = 64"):
        card_of(enrolment("fedavg"), **changes)
    assert card_of(enrolment("fedavg", federation__max_message=300), **changes).samples == 10
