"""What travels is counted exactly and checked against the list."""

import pytest
import torch

from pfedes import Payload, WireError
from pfedes.payload import Group, Max, TensorSpec, WireSpec, decode, encode, required


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
        (fitting(u=torch.zeros(4, 1), v=torch.zeros(2)), "out of place"),
        (fitting(dense=None, u=torch.zeros(4, 1)), "missing or out of place"),
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
