"""What travels is counted exactly and checked against the list."""

import pytest
import torch

from pfedes import Payload, WireError
from pfedes.core.payload import LARGEST_HEADER, Max, TensorSpec, decode, encode, forms_in
from pfedes.core.wire import Group, WireSpec, required


def payload() -> Payload:
    return Payload(
        {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)},
        {"n": 3, "loss": 0.5, "ids": [1, 2, 4]},
    )


def test_counts() -> None:
    assert payload().floats == 7
    assert payload().bytes == 6 * 4 + 8
    assert payload().metadata == 5


def test_round_trip_is_exact() -> None:
    there = payload()
    back = decode(encode(there))
    assert back.meta == there.meta
    assert back.digest() == there.digest()
    torch.testing.assert_close(back.tensors, there.tensors, rtol=0, atol=0)


def test_memory_layout_and_shared_memory_do_not_matter() -> None:
    x = torch.randn(2, 3, 4, 5)
    plain = Payload({"x": x, "y": x})
    laid_out = Payload({"x": x.to(memory_format=torch.channels_last), "y": x})
    assert plain.digest() == laid_out.digest()
    assert encode(plain) == encode(laid_out)


def test_digest_sees_names_types_shapes_and_metadata() -> None:
    x = torch.zeros(4)
    digests = {
        Payload({"x": x}).digest(),
        Payload({"y": x}).digest(),
        Payload({"x": x.reshape(2, 2)}).digest(),
        Payload({"x": x.int()}).digest(),
        Payload({"x": x}, {"n": 1}).digest(),
    }
    assert len(digests) == 5


def test_every_damaged_byte_is_noticed() -> None:
    data = encode(payload())
    for position in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= 1
        try:
            back = decode(bytes(damaged))
        except WireError:
            continue
        assert back.digest() == payload().digest()  # a byte of padding


@pytest.mark.parametrize("data", [b"", b"nonsense", encode(payload())[:-1], b"\xff" * 64])
def test_what_is_no_payload_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


SPEC = WireSpec(
    (
        required({"w": TensorSpec((2, 3))}),
        Group(({"extra": TensorSpec((Max(4),))}, {})),
        Group(
            (
                {"dense": TensorSpec((4, 4))},
                {"u": TensorSpec((4, Max(2))), "v": TensorSpec((2,))},
            )
        ),
    ),
    {"n": int, "loss": float},
)


def fitting(**changes: torch.Tensor | None) -> Payload:
    tensors = {"w": torch.zeros(2, 3), "dense": torch.zeros(4, 4), **changes}
    return Payload({k: v for k, v in tensors.items() if v is not None}, {"n": 1, "loss": 0.0})


@pytest.mark.parametrize(
    "good",
    [
        fitting(),
        fitting(extra=torch.zeros(4)),
        fitting(extra=torch.zeros(0)),
        fitting(dense=None, u=torch.zeros(4, 1), v=torch.zeros(2)),
    ],
)
def test_what_is_listed_may_travel(good: Payload) -> None:
    SPEC.check(good)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (fitting(w=None), "'w' is missing"),
        (fitting(secret=torch.zeros(1)), "'secret' is not on the allow-list"),
        (fitting(w=torch.zeros(3, 2)), r"'w' is \[3, 2\] float32, expected \[2, 3\]"),
        (fitting(w=torch.zeros(2, 3).double()), "float64, expected"),
        (fitting(w=torch.full((2, 3), torch.nan)), "'w' holds NaN"),
        (fitting(w=torch.full((2, 3), torch.inf)), "'w' holds NaN or infinity"),
        (fitting(extra=torch.zeros(5)), r"expected \[<=4\]"),
        (fitting(u=torch.zeros(4, 1), v=torch.zeros(2)), "does not belong there"),
        (fitting(dense=None, u=torch.zeros(4, 1)), "missing or does not belong there"),
        (Payload(fitting().tensors, {"n": 1}), "'loss' is missing"),
        (Payload(fitting().tensors, {"n": 1, "loss": 0.0, "age": 3}), "'age' is not on"),
        (Payload(fitting().tensors, {"n": True, "loss": 0.0}), r"True \(bool\), expected int"),
        (Payload(fitting().tensors, {"n": 1.0, "loss": 0.0}), "expected int"),
        (Payload(fitting().tensors, {"n": 1, "loss": float("nan")}), "'loss' is nan"),
    ],
)
def test_what_is_not_listed_may_not(bad: Payload, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        SPEC.check(bad)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"w": torch.zeros(2, 3), "dense": torch.zeros(4, 4)}, ""),
        ({"w": torch.zeros(2, 4), "dense": torch.zeros(4, 4)}, r"'w' is \[2, 4\] float32"),
        ({"w": torch.zeros(2, 3).double(), "dense": torch.zeros(4, 4)}, "float64"),
        ({"w": torch.zeros(2, 3), "dense": torch.zeros(4, 4), "more": torch.zeros(9)}, "'more'"),
        ({"w": torch.zeros(2, 3)}, "'dense' is missing"),
    ],
)
def test_forms_are_looked_at_before_any_tensor_is_made(
    tensors: dict[str, torch.Tensor], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(Payload(tensors))
    if not why:
        assert decode(data, SPEC).digest() == decode(data).digest()
        return

    def make(data: bytes) -> None:
        raise AssertionError("a tensor was made")

    monkeypatch.setattr("safetensors.torch.load", make)
    with pytest.raises(WireError, match=why):
        decode(data, SPEC)


def test_a_failure_is_read_though_an_upload_was_expected() -> None:
    """It has no tensors; a client that lacks its base says so in this way."""
    failure = Payload({}, {"kind": "failure", "reason": "missing base", "versions": [1, 2]})
    assert decode(encode(failure), SPEC).meta == failure.meta


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{" * 100_000,
        b"[]",
        b'{"w": 7}',
        b'{"w": {"dtype": "F8_E4M3", "shape": [2]}}',
        b'{"w": {"dtype": "F32", "shape": ["x"]}}',
        b'{"w": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"]}}",
        b'{"w": {"dtype": "F32", "shape": [2]}}' + b" " * LARGEST_HEADER,
    ],
)
def test_headers_that_are_none(header: bytes) -> None:
    data = len(header).to_bytes(8, "little") + header
    for announced in (data, (2**62).to_bytes(8, "little") + header):
        with pytest.raises(WireError):
            forms_in(announced)
