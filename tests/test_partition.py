"""For any number of clients: a valid partition, or an error that names the largest that works."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfedes import PartitionError
from pfedes.data.partition import PartitionConfig, Share, apportion, partition
from pfedes.data.sources import stratified
from pfedes.errors import ConfigError


def deal(labels: np.ndarray, seed: int = 0, **config: Any) -> list[Share]:
    return partition(labels, PartitionConfig(**config), np.random.default_rng(seed))


def assert_sound(labels: np.ndarray, shares: list[Share]) -> np.ndarray:
    """Disjoint rows that exist, nobody without training or test samples; returns all rows."""
    rows = np.concatenate([share.rows() for share in shares])
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(labels)
    assert all(len(share.train) and len(share.test) for share in shares)
    return rows


@given(st.integers(0, 1000), st.lists(st.floats(0.01, 10), min_size=1, max_size=20))
def test_apportion_adds_up_and_is_within_one(total: int, weights: list[float]) -> None:
    counts = apportion(total, weights)
    assert counts.sum() == total
    exact = np.array(weights) / sum(weights) * total
    assert (abs(counts - exact) < 1 + 1e-6).all()


def test_apportion_by_hand() -> None:
    assert apportion(10, [5, 3, 2]).tolist() == [5, 3, 2]
    assert apportion(10, [1, 1, 1]).tolist() == [4, 3, 3]
    assert apportion(3, [0.5, 0.3, 0.2]).tolist() == [1, 1, 1]  # remainders .5 .9 .6: 1 0 0 first


@given(st.data())
def test_partition_by_classes(data: st.DataObject) -> None:
    classes = data.draw(st.integers(1, 12), "classes")
    sizes = data.draw(st.lists(st.integers(3, 60), min_size=classes, max_size=classes), "sizes")
    clients = data.draw(st.integers(1, 60), "clients")
    per_client = data.draw(st.integers(1, classes), "classes per client")
    seed = data.draw(st.integers(0, 99), "seed")
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), sizes))
    config = {"clients": clients, "classes_per_client": per_client}
    try:
        shares = deal(labels, seed, **config)
    except PartitionError as error:
        most = int(re.findall(r"\d+", str(error))[-1])
        assert most < clients
        if most:
            assert_sound(labels, deal(labels, seed, **{**config, "clients": most}))
        with pytest.raises(PartitionError):
            deal(labels, seed, **{**config, "clients": most + 1})
        return
    rows = assert_sound(labels, shares)
    held = [np.unique(labels[share.rows()]) for share in shares]
    assert all(len(own) == per_client for own in held)
    if per_client * clients >= classes:
        assert len(rows) == len(labels)  # every sample has an owner
    holders = np.bincount(np.concatenate(held), minlength=classes)
    assert holders.max() - holders.min() <= 1
    for share in shares:
        own, counts = np.unique(labels[share.rows()], return_counts=True)
        for label in own[counts >= 3]:  # sizes allow: the class is in all three splits
            assert all(label in labels[part] for part in (share.train, share.val, share.test))


@given(
    st.sampled_from(["dirichlet", "iid"]),
    st.integers(1, 40),
    st.integers(10, 400),
    st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
)
def test_other_partitions(kind: str, clients: int, samples: int, alpha: float) -> None:
    labels = np.arange(samples) % 7
    config: dict[str, Any] = {"kind": kind, "clients": clients, "alpha": alpha}
    if samples < 2 * clients:
        with pytest.raises(PartitionError, match=f"largest number that works is {samples // 2}$"):
            deal(labels, **config)
        return
    rows = assert_sound(labels, deal(labels, **config))
    assert len(rows) == samples


def test_iid_clients_are_alike() -> None:
    labels = np.arange(1000) % 10
    for share in deal(labels, kind="iid", clients=10):
        assert np.bincount(labels[share.rows()]).tolist() == [10] * 10


def test_a_small_alpha_makes_clients_differ_more() -> None:
    labels = np.arange(5000) % 10

    def largest(alpha: float) -> float:
        shares = deal(labels, kind="dirichlet", clients=10, alpha=alpha)
        counts = [np.bincount(labels[share.rows()], minlength=10) for share in shares]
        return float(np.mean([count.max() / count.sum() for count in counts]))

    assert largest(0.1) > 2 * largest(100.0)


def test_sizes_of_the_paper() -> None:
    """CIFAR-10 with 100 clients of 2 classes: 480/60/60 on average, shares between 0.4 and 0.6."""
    labels = np.repeat(np.arange(10), 6000)
    shares = deal(labels, clients=100, classes_per_client=2)
    sizes = [[len(s.train), len(s.val), len(s.test)] for s in shares]
    assert np.mean(sizes, axis=0).tolist() == pytest.approx([480, 60, 60], abs=0.5)
    low, high = 0.4 / (0.4 + 0.6 * 19), 0.6 / (0.6 + 0.4 * 19)  # of a class with 20 holders
    for share in shares:
        for count in np.unique(labels[share.rows()], return_counts=True)[1]:
            assert 6000 * low - 1 <= count <= 6000 * high + 1


def test_the_seed_decides() -> None:
    labels = np.arange(500) % 10
    first, again, other = (deal(labels, seed, clients=8) for seed in (1, 1, 2))
    assert all((a.train == b.train).all() for a, b in zip(first, again, strict=True))
    assert any(len(a.train) != len(b.train) or (a.train != b.train).any()
               for a, b in zip(first, other, strict=True))  # fmt: skip


def test_more_classes_than_there_are() -> None:
    with pytest.raises(PartitionError, match="classes_per_client = 11, but the data has 10"):
        deal(np.arange(100) % 10, classes_per_client=11)


def test_stratified_limit() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    rows = stratified(labels, 100, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [60, 30, 10]
    assert len(np.unique(rows)) == 100
    assert stratified(labels, 0, np.random.default_rng(0)).tolist() == list(range(1000))


def test_a_split_must_add_up() -> None:
    from pfedes import configure

    with pytest.raises(ConfigError, match="add up to 1"):
        configure(settings={"partition.split": [0.8, 0.1, 0.2]})
    with pytest.raises(ConfigError, match="some for train and test"):
        configure(settings={"partition.split": [0.9, 0.1, 0.0]})


# --- the official split, and the legacy rules ---


def official(labels: np.ndarray, test: np.ndarray, seed: int = 0, **config: Any) -> list[Share]:
    settings = PartitionConfig(split="official", **config)
    return partition(labels, settings, np.random.default_rng(seed), official_test=test)


def cifar_like(per_class: int = 600, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which the last sixth is the official test set."""
    labels = np.concatenate(
        [np.repeat(np.arange(classes), n) for n in (per_class * 5 // 6, per_class // 6)]
    )
    return labels, np.arange(len(labels)) >= classes * per_class * 5 // 6


@pytest.mark.parametrize("kind", ["classes", "dirichlet", "iid"])
def test_the_official_test_set_stays_test(kind: str) -> None:
    labels, is_test = cifar_like()
    shares = official(labels, is_test, kind=kind, clients=10, alpha=5.0)
    assert len(assert_sound(labels, shares)) == len(labels)
    assert all(is_test[share.test].all() for share in shares)
    assert not any(is_test[np.concatenate([s.train, s.val])].any() for s in shares)
    assert sum(len(s.train) for s in shares) == 4000
    assert sum(len(s.val) for s in shares) == 1000
    if kind == "classes":
        for share in shares:
            held = [set(labels[part]) for part in (share.train, share.val, share.test)]
            assert held[0] == held[1] == held[2]
            assert len(held[0]) == 2
            assert len(share.train) / len(share.test) == pytest.approx(4, rel=0.1)


def test_without_an_official_test_set_there_is_no_official_split() -> None:
    labels = np.arange(100) % 10
    with pytest.raises(PartitionError, match="no test set of its own"):
        official(labels, np.zeros(100, bool), clients=5)


def test_the_official_split_names_the_largest_number_too() -> None:
    labels, is_test = cifar_like(per_class=60)  # 50 training (40 after validation), 10 test
    assert official(labels, is_test, clients=50)
    with pytest.raises(PartitionError, match="largest number that works is 50"):
        official(labels, is_test, clients=51)


def test_legacy_rules_lose_what_they_are_known_to_lose() -> None:
    """CIFAR-10's shape, 10 clients of 2 classes: floor loses a few, floor + 1 a third."""
    labels = np.repeat(np.arange(10), 6000)
    used = {
        rule: sum(len(s.rows()) for s in deal(labels, rule=rule, clients=10)) / len(labels)
        for rule in ("even", "floor", "floor_plus_one")
    }
    assert used["even"] == 1
    assert 0.999 < used["floor"] < 1
    assert used["floor_plus_one"] == pytest.approx(2 / 3, abs=0.03)


def test_legacy_rules_give_a_class_twice_where_they_are_known_to() -> None:
    labels = np.repeat(np.arange(10), 600)
    fewer = 0
    for seed in range(20):
        shares = deal(labels, seed, rule="floor", clients=50, classes_per_client=8)
        fewer += sum(len(np.unique(labels[share.rows()])) < 8 for share in shares)
    assert fewer / (20 * 50) == pytest.approx(0.54, abs=0.08)


@pytest.mark.parametrize("clients", [4, 7, 12])
def test_where_the_floor_rule_breaks_it_says_so(clients: int) -> None:
    labels = np.repeat(np.arange(10), 600)
    with pytest.raises(PartitionError, match=r"runs out of shares at client .* multiple of 10"):
        deal(labels, rule="floor", clients=clients)
    assert_sound(labels, deal(labels, rule="floor_plus_one", clients=clients))
