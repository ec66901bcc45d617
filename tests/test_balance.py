"""Classes that count equally: weights, balanced epochs, and every method that uses them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

from pfedes import ConfigError, Federation, configure
from pfedes.core.balance import balanced_rows, balanced_weights
from pfedes.core.samples import AS_THEY_ARE, Batch, FloatSamples
from pfedes.core.training import label_loss
from pfedes.federation.directory import free_directory
from pfedes.methods import METHODS
from running import tiny

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(LABELS)
def test_weights_are_those_of_scikit_learn(labels: list[int]) -> None:
    present = np.unique(labels)
    expected = compute_class_weight("balanced", classes=present, y=np.array(labels))
    found = balanced_weights(torch.tensor(labels), 5)
    assert found[present].tolist() == pytest.approx(expected.tolist())
    assert found[4] == 1


@given(LABELS, st.integers(1, 60), st.integers(0, 99))
def test_a_balanced_epoch_sees_every_class_alike(labels: list[int], count: int, seed: int) -> None:
    held = torch.tensor(labels)
    rows = balanced_rows(held, count, torch.Generator().manual_seed(seed))
    assert len(rows) == count
    seen = [int((held[rows] == label).sum()) for label in sorted(set(labels))]
    assert max(seen) - min(seen) <= 1
    for label in set(labels):
        own = [int((rows == row).sum()) for row in range(len(labels)) if labels[row] == label]
        assert max(own) - min(own) <= 1


def test_a_loss_by_hand() -> None:
    """The second sample counts three times as much as the first."""
    logits, labels = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
    each = F.cross_entropy(logits, labels, reduction="none")
    batch = Batch(logits, labels, weights=torch.tensor([1.0, 3.0]))
    assert label_loss(logits, batch).item() == pytest.approx((each[0] + 3 * each[1]).item() / 4)
    assert label_loss(logits, Batch(logits, labels)) == each.mean()


def test_batches_of_a_balanced_epoch() -> None:
    labels = torch.tensor([0] * 18 + [1] * 2)
    samples = FloatSamples(torch.arange(20.0)[:, None], labels, AS_THEY_ARE)
    beside = torch.arange(20)
    found = list(samples.shuffled(8, torch.Generator(), None, beside, balanced=True))
    assert [len(batch) for batch in found] == [8, 8, 4]
    seen = torch.cat([batch.y for batch in found])
    assert torch.bincount(seen).tolist() == [10, 10]
    for batch in found:
        assert batch.beside is not None
        assert batch.x[:, 0].tolist() == batch.beside.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_weighs_classes(method: str) -> None:
    """By the loss that it reports. All draw their batches by `fit`, so that one shows the other."""
    losses = [loss_of(method, train__class_weights=kind) for kind in ("none", "balanced")]
    assert losses[0] != losses[1]


def loss_of(method: str, **settings: Any) -> float:
    """Of unequal classes: with even ones all weights are 1."""
    quick = {"runtime__report": False, "train__epochs": 1, "partition__kind": "dirichlet"}
    config = tiny(method, **quick, partition__alpha=0.3, **settings)
    run = Federation(config, out=free_directory("run")).run()
    assert run.trained, run.why_untrained()
    return float(run.rounds[0]["loss"])


@pytest.mark.parametrize("method", ["fd", "fedproto"])
def test_statistics_of_the_last_epoch_are_of_what_is_held(method: str) -> None:
    """A rare class is seen more often than it has samples, and none is left out."""
    last = {"method__statistics": "last_epoch"}
    assert loss_of(method, **last, train__sampler="balanced") != loss_of(method, **last)


def test_class_weights_work_in_bf16() -> None:
    loss_of("standalone", train__class_weights="balanced", train__precision="bf16")


def test_class_weights_with_a_balanced_sampler_are_refused() -> None:
    with pytest.raises(ConfigError, match="choose one"):
        configure(settings={"train.class_weights": "balanced", "train.sampler": "balanced"})
