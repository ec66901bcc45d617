"""Discrete Gaussian noise, exact, from a stream of secret bytes.

The sampler follows Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy,
2020: rejection from a discrete Laplace distribution, in whole numbers alone. Floating-point
Gaussians leak by their lowest bits (Mironov 2012); whole numbers have none, and they are the same
on every machine.
"""

import json
import math
import secrets
from fractions import Fraction
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pfedes.errors import DamageError
from pfedes.files import read, write_atomically
from pfedes.privacy.encoding import ONE, Whole

NOISE_KEY = "noise.key"
KEY_BYTES = 32
PURPOSE = "pfedes-noise-1"


def kept_key(path: Path, *, released: bool) -> bytes:
    """The secret key of the noise, made before the first release; never sent."""
    if not path.exists():
        if released:
            raise DamageError(f"{path} is gone: no further round can be accounted for")
        write_atomically(path, secrets.token_bytes(KEY_BYTES))
    if len(key := read(path)) != KEY_BYTES:
        raise DamageError(f"{path} is damaged: it has {len(key)} bytes, not {KEY_BYTES}")
    return key


class NoiseStream:
    """Uniform whole numbers from ChaCha20 under a key derived for one purpose."""

    BLOCK = 2**14

    def __init__(self, key: bytes, info: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a noise key has {KEY_BYTES} bytes, found {len(key)}")
        derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)
        self._cipher = Cipher(ChaCha20(derived, bytes(16)), None).encryptor()
        self._bytes, self._at = b"", 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1, each equally likely."""
        bits = (limit - 1).bit_length()
        size, mask = (bits + 7) // 8, (1 << bits) - 1
        while bits:
            if (number := int.from_bytes(self._take(size), "little") & mask) < limit:
                return number
        return 0

    def _take(self, size: int) -> bytes:
        if self._at + size > len(self._bytes):
            fresh = self._cipher.update(bytes(self.BLOCK))
            self._bytes, self._at = self._bytes[self._at :] + fresh, 0
        self._at += size
        return self._bytes[self._at - size : self._at]


def stream_of_release(key: bytes, run: str, round: int, inputs: str) -> NoiseStream:
    """The noise of one release.

    `inputs` is the digest of what the noise is added to. The same release again, after a crash,
    has the same noise and tells nothing new; another one has noise of its own.
    """
    return NoiseStream(key, json.dumps([PURPOSE, run, round, inputs]).encode())


def variance_of(noise: float, sharers: int = 1) -> int:
    """The variance, in squared units of the encoding, of noise that so many add together.

    With z = `noise`, the sum's standard deviation is at least z times the clip.
    """
    return math.ceil((Fraction(noise) * ONE) ** 2 / sharers)


def gaussian(variance: int, count: int, stream: NoiseStream) -> Whole:
    """So many numbers of the discrete Gaussian distribution around 0."""
    scale = math.isqrt(variance) + 1
    return np.array([_gaussian(variance, scale, stream) for _ in range(count)], dtype=np.int64)


def _gaussian(variance: int, scale: int, stream: NoiseStream) -> int:
    while True:
        candidate = _laplace(scale, stream)
        excess = (abs(candidate) * scale - variance) ** 2
        if _happens(excess, 2 * variance * scale**2, stream):
            return candidate


def _laplace(scale: int, stream: NoiseStream) -> int:
    """y with probability proportional to exp(-|y| / scale)."""
    while True:
        is_negative = stream.below(2) == 1
        while not _happens(rest := stream.below(scale), scale, stream):
            pass
        wholes = 0
        while _happens(1, 1, stream):
            wholes += 1
        magnitude = rest + wholes * scale
        if magnitude or not is_negative:  # else 0 would come twice
            return -magnitude if is_negative else magnitude


def _happens(numerator: int, denominator: int, stream: NoiseStream) -> bool:
    """True with probability exp(-numerator / denominator)."""
    while numerator > denominator:
        if not _happens_at_most_one(1, 1, stream):
            return False
        numerator -= denominator
    return _happens_at_most_one(numerator, denominator, stream)


def _happens_at_most_one(numerator: int, denominator: int, stream: NoiseStream) -> bool:
    """The same for an exponent from -1 to 0: von Neumann's way, by the parity of a run."""
    runs = 1
    while stream.below(denominator * runs) < numerator:
        runs += 1
    return runs % 2 == 1
