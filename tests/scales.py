"""The paper's experiments at the least size that still tells them apart."""

from dataclasses import replace

from pfedes.reproduction.scale import SMOKE, Crowd

TINY = replace(
    SMOKE,
    crowds={
        10: Crowd(3, rounds=2, epochs=1, batch_size=16),
        20: Crowd(3, rounds=2, epochs=1, batch_size=16),
        50: Crowd(4, rounds=2, epochs=1, batch_size=16),
        100: Crowd(5, rounds=2, epochs=1, batch_size=16),
    },
    settings={"data.limit": 200, "models.pool": ["cnn5"]},
)
"""The scale smoke with less of everything but experiments: a run takes a fraction of a second.

Homogeneous and heterogeneous clients are the same at this scale.
"""
