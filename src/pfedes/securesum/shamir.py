"""Shamir's secret sharing over the integers modulo the Mersenne prime 2^521 - 1."""

import secrets
from collections.abc import Mapping, Sequence

from pfedes.errors import WireError

PRIME = 2**521 - 1
SHARE_BYTES = 66


def threshold(members: int) -> int:
    """How many shares open a secret: more than two thirds."""
    return 2 * members // 3 + 1


def split(secret: int, members: int) -> list[bytes]:
    """Shares of a secret, for the points 1, 2, ... in this order."""
    if not 0 <= secret < PRIME:
        raise ValueError("a secret is a number below the prime")
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(threshold(members) - 1))]
    shares = []
    for point in range(1, members + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def weights_at_zero(points: Sequence[int]) -> list[int]:
    """Lagrange's weights: the same for all secrets whose shares have these points."""
    weights = []
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def join(shares: Mapping[int, bytes], weights: Sequence[int]) -> int:
    """The secret, from shares by their points, with the weights of these points in this order."""
    secret = 0
    for share, weight in zip(shares.values(), weights, strict=True):
        value = int.from_bytes(share, "big")
        if value >= PRIME:
            raise WireError("a share that is not a number below the prime")
        secret = (secret + value * weight) % PRIME
    return secret
