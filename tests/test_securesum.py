"""The secure sum by itself: exact, whoever drops out or is killed, and opened once."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfedes.errors import DamageError, RefusedError, WireError
from pfedes.securesum import shamir
from pfedes.securesum.collector import collect
from pfedes.securesum.masking import (
    MOST_MEMBERS,
    Ready,
    check_members,
    digest_of,
    masked,
    own_mask,
    stream,
)
from pfedes.securesum.member import MOST_SETS
from summing import ASKED, NAMES, RUN, SIZE, Cohort, KilledError, Killer, Line


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here: what was written is there without waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@given(
    secret=st.integers(0, 2**256 - 1),
    members=st.integers(2, 12),
    data=st.data(),
)
def test_more_than_two_thirds_of_the_shares_give_the_secret(
    secret: int, members: int, data: st.DataObject
) -> None:
    shares = shamir.split(secret, members)
    needed = shamir.threshold(members)
    points = data.draw(st.permutations(range(1, members + 1)))[:needed]
    chosen = {point: shares[point - 1] for point in points}
    assert shamir.join(chosen, shamir.weights_at_zero(points)) == secret
    if needed > 1:  # one fewer, and any secret would fit as well
        fewer = dict(list(chosen.items())[1:])
        assert shamir.join(fewer, shamir.weights_at_zero(list(fewer))) != secret


def test_so_many_members_that_no_sum_can_overflow() -> None:
    members = [
        Ready(f"{number:05d}", number.to_bytes(32, "big"), bytes(16))
        for number in range(MOST_MEMBERS + 1)
    ]
    check_members(members[:MOST_MEMBERS])
    with pytest.raises(WireError, match="a sum of 1025 members: 1024 are the most"):
        check_members(members)


def test_a_polynomial_by_hand() -> None:
    """f(x) = 5 + 3x + 2x^2 at 1, 2, 3."""
    shares = {x: (5 + 3 * x + 2 * x * x).to_bytes(66, "big") for x in (1, 2, 3)}
    assert shamir.weights_at_zero([1, 2, 3]) == [3, shamir.PRIME - 3, 1]
    assert shamir.join(shares, shamir.weights_at_zero([1, 2, 3])) == 5


def test_masks_between_two_members_cancel_and_a_members_own_stays() -> None:
    digest, seeds = bytes(32), (b"a" * 32, b"b" * 32)
    x = np.array([1, -2, 2**62], np.int64)
    first = masked(x, seeds[0], 0, [None, b"s" * 32], digest)
    second = masked(-x, seeds[1], 1, [b"s" * 32, None], digest)
    rest = sum(own_mask(seed, digest, 3) for seed in seeds)
    assert ((first + second).view(np.uint64) == rest).all()
    assert not (first == x).any()


def test_a_stream_is_chacha20() -> None:
    """RFC 8439, 2.3.2 without its nonce: the known first words for a key and nonce of zeros."""
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    assert stream(bytes(32), 2).tobytes() == expected


@given(
    count=st.integers(3, 5),
    lost=st.sets(st.tuples(st.sampled_from(("mask", "open")), st.sampled_from(NAMES))),
)
def test_a_sum_is_exact_or_there_is_none(
    tmp_path_factory: pytest.TempPathFactory, count: int, lost: set[tuple[str, str]]
) -> None:
    """Whoever is lost at whichever step: without it, or not at all."""
    cohort = Cohort(tmp_path_factory.mktemp("sum"), NAMES[:count], lost=lost)
    there = [name for name in cohort.names if ("mask", name) not in lost]
    open_too = [name for name in there if ("open", name) not in lost]
    possible = len(there) >= 3 and len(open_too) >= shamir.threshold(len(there))
    if not possible:
        with pytest.raises(WireError, match=r"fewest|needed"):
            cohort.collect()
        if len(there) < 3:
            assert not cohort.opened
        return
    total = cohort.collect()
    assert total.names == tuple(there)
    assert (total.values == cohort.sum_of(there)).all()


@pytest.mark.parametrize("lost", [set(), {("open", "ben")}], ids=["nobody", "one who opens"])
def test_no_kill_spoils_a_sum_or_opens_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: set[tuple[str, str]]
) -> None:
    """At each write of each process, in turn: the server starts again, members do when asked."""
    at, served = 0, 0
    while True:
        at += 1
        cohort = Cohort(tmp_path / str(at), NAMES[: 4 + len(lost)], lost=lost)
        _ = cohort.keys
        with monkeypatch.context() as patch:
            killer = Killer(patch, at)
            try:
                total = cohort.collect()
            except KilledError:  # not a member's, so it was the server's
                served += 1
                total = cohort.collect()
        assert (total.values == cohort.sum_of(total.names)).all()
        assert all(len(digests) == 1 for digests in cohort.opened.values())
        again = cohort.collect()
        assert again.names == total.names
        assert (again.values == total.values).all()
        if killer.calls < at:
            break
    assert at > 24
    assert served == 6  # two files of the server's, with three calls each


def test_a_kill_at_the_server_opens_the_same_set(tmp_path: Path) -> None:
    """It was killed after some had opened: it may not continue with those who are there now."""
    cohort = Cohort(tmp_path, lost={("open", name) for name in NAMES[2:]})
    with pytest.raises(WireError, match="needed"):
        cohort.collect()
    cohort.lost = {("mask", "ada")}
    assert cohort.collect().names == NAMES


def opening(cohort: Cohort, members: list[Ready]) -> Callable[[], object]:
    """What the first member would open for a set of members, after all of them have masked."""
    digest = digest_of(RUN, 1, members, ASKED)
    answers = [
        cohort.member(m.name).mask(1, cohort.own[m.name], members, cohort.keys, 3) for m in members
    ]
    return lambda: cohort.member("ada").open(1, digest, [a.shares[0] for a in answers])


def test_a_second_set_is_refused_after_the_first_was_opened(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    everybody, without = cohort.ready(), cohort.ready()[:-1]
    first, second = opening(cohort, everybody), opening(cohort, without)
    opened = first()
    with pytest.raises(RefusedError, match="another sum of round 1"):
        second()
    with pytest.raises(RefusedError, match="another sum of round 1"):
        opening(cohort, without)
    assert first() == opened  # the same again is no news


def test_members_who_were_asked_for_something_else_are_in_no_sum(tmp_path: Path) -> None:
    """A coordinator may ask all but ada for what makes them add nothing: the sum would be ada's."""
    cohort = Cohort(tmp_path)
    members = [
        replace(m, nonce=cohort.member(m.name).ready(1, cohort.own[m.name], f"{m.name == 'ada'}"))
        for m in cohort.ready()
    ]
    ada, ben = cohort.member("ada"), cohort.member("ben")
    assert ada.digest(1, members) != ben.digest(1, members)
    for name in ("ada", "ben"):
        member = cohort.member(name)
        sealed = [
            cohort.member(m.name).mask(1, cohort.own[m.name], members, cohort.keys, 3)
            .shares[NAMES.index(name)]
            for m in members
        ]  # fmt: skip
        with pytest.raises(RefusedError, match=r"no share of \w+ that can be read"):
            member.open(1, member.digest(1, members), sealed)
    # The same value for another request has another nonce, and none once it was opened.
    first = cohort.nonce(1, "ben")
    assert cohort.member("ben").ready(1, cohort.own["ben"], "another") != first


def test_training_again_opens_no_second_set(tmp_path: Path) -> None:
    """A coordinator may have it trained from another download, and then from the first again."""
    cohort = Cohort(tmp_path)
    opening(cohort, cohort.ready())()
    first = cohort.own["ada"]
    ada = cohort.member("ada")
    with pytest.raises(RefusedError, match="opened, with another value"):
        ada.ready(1, first + 1, ASKED)
    nonce = ada.ready(1, first, ASKED)
    assert nonce == cohort.ready()[0].nonce


def test_a_recomputed_value_makes_the_old_sets_useless(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    before = cohort.ready()
    stale = opening(cohort, before)
    ada = cohort.member("ada")
    assert ada.ready(1, cohort.own["ada"] + 1, ASKED) != before[0].nonce
    with pytest.raises(RefusedError, match="nothing was masked"):
        stale()
    with pytest.raises(RefusedError, match="nothing is ready"):
        ada.mask(1, cohort.own["ada"], [], cohort.keys, 3)


def test_no_round_before_the_last_opened_one_is_masked(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    earlier = cohort.ready()
    cohort.collect(round=2)
    ada = cohort.member("ada")
    for asked in (
        lambda: ada.ready(1, cohort.own["ada"], ASKED),
        lambda: ada.mask(1, cohort.own["ada"], earlier, cohort.keys, 3),
    ):
        with pytest.raises(RefusedError, match="round 2 was opened"):
            asked()
    cohort.collect(round=3)
    assert [path.name for path in sorted((tmp_path / "ada").glob("*.json"))] == ["00003.json"]


def test_the_same_set_gets_the_same_bytes_after_a_kill(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    first, second = (
        cohort.member("ada").mask(1, cohort.own["ada"], cohort.ready(), cohort.keys, 3)
        for _ in range(2)
    )
    assert (first.values == second.values).all()
    assert first.shares == second.shares


def changed(member: Ready, **fields: object) -> Ready:
    return replace(member, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: [r[0], changed(r[1], key=b"k" * 32), *r[2:]], "ben is not the one"),
        (lambda r: [r[0], changed(r[1], name="bert"), *r[2:]], "'bert' is not known"),
        (lambda r: [changed(r[0], nonce=bytes(16)), *r[1:]], "own entry"),
        (lambda r: [changed(r[0], key=bytes(32)), *r[1:]], "own entry"),
        (lambda r: r[1:], "own entry"),
        (lambda r: r[:2], "3 are the fewest"),
        (lambda r: [r[0], *r], "nobody twice"),
        (lambda r: r[::-1], "order"),
        (lambda r: [r[0], changed(r[1], key=r[2].key), *r[2:]], "the same key"),
        (lambda r: [r[0], changed(r[1], nonce=b""), *r[2:]], "another length"),
    ],
)  # fmt: skip
def test_a_forged_set_is_refused_before_anything_is_written(
    tmp_path: Path, change: Callable[[list[Ready]], list[Ready]], reason: str
) -> None:
    cohort = Cohort(tmp_path)
    forged = change(cohort.ready())
    with pytest.raises(WireError, match=reason):
        cohort.member("ada").mask(1, cohort.own["ada"], forged, cohort.keys, 3)
    account = json.loads((tmp_path / "ada" / "00001.json").read_text())
    assert account["attempts"] == {}


def test_a_key_that_agrees_with_everybody_is_refused(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    forged = [cohort.ready()[0], changed(cohort.ready()[1], key=bytes(32)), *cohort.ready()[2:]]
    with pytest.raises(WireError, match="no secret can be agreed"):
        cohort.member("ada").mask(
            1, cohort.own["ada"], forged, {**cohort.keys, "ben": bytes(32)}, 3
        )


def test_only_what_was_masked_is_opened_and_only_with_everybodys_share(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    ready = cohort.ready()
    digest = digest_of(RUN, 1, ready, ASKED)
    ada = cohort.member("ada")
    with pytest.raises(RefusedError, match="nothing was masked"):
        ada.open(1, digest, [bytes(94)] * 5)
    shares = [
        cohort.member(m.name).mask(1, cohort.own[m.name], ready, cohort.keys, 3).shares[0]
        for m in ready
    ]
    stale = digest_of(RUN, 1, ready[:4], ASKED)
    other_round = (
        cohort.member("ben").mask(2, cohort.own["ben"], cohort.ready(2), cohort.keys, 3).shares[0]
    )
    for wrong, reason in [
        ([*shares[:2], bytes(94), *shares[3:]], "no share of cleo"),
        ([*shares[:2], b"", *shares[3:]], "no share of cleo"),
        ([*shares[:2], shares[3], *shares[3:]], "no share of cleo"),
        ([shares[0], other_round, *shares[2:]], "no share of ben"),
        (shares[:4], "4 shares of 5"),
    ]:
        with pytest.raises(WireError, match=reason):
            ada.open(1, digest, wrong)
    with pytest.raises(RefusedError, match="nothing was masked"):
        ada.open(1, stale, shares)
    with pytest.raises(RefusedError, match="nothing was masked"):
        ada.open(2, digest, shares)
    account = json.loads((tmp_path / "ada" / "00001.json").read_text())
    assert account["opened"] == ""
    assert len(ada.open(1, digest, shares)) == 5


def test_a_damaged_account_is_not_forgotten(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    cohort.collect()
    (tmp_path / "ada" / "00001.json").write_text("{}")
    with pytest.raises(DamageError, match="damaged"):
        cohort.member("ada").ready(1, cohort.own["ada"], ASKED)


def test_a_value_is_masked_for_so_many_sets(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    ada, own, ready = cohort.member("ada"), cohort.own["ada"], cohort.ready()
    for index in range(MOST_SETS + 1):
        members = [*ready[:4], changed(ready[4], nonce=index.to_bytes(16, "big"))]
        if index < MOST_SETS:
            ada.mask(1, own, members, cohort.keys, 3)
        else:
            with pytest.raises(RefusedError, match="64 sets"):
                ada.mask(1, own, members, cohort.keys, 3)


def test_what_a_member_masks_looks_like_nothing(tmp_path: Path) -> None:
    """Two rounds with the same value have nothing in common, and neither shows the value."""
    cohort = Cohort(tmp_path)
    ada, own = cohort.member("ada"), cohort.own["ada"]
    seen = [ada.mask(n, own, cohort.ready(n), cohort.keys, 3).values for n in (1, 2)]
    assert len({*seen[0], *seen[1], *own}) == 3 * SIZE


def test_a_liar_spoils_a_sum_and_is_noticed(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)

    class Lying:
        def __init__(self) -> None:
            self.line = Line(cohort, 1)
            self.mask = self.line.mask

        def open(self, digest, sealed):  # type: ignore[no-untyped-def]
            for name, shares in self.line.open(digest, sealed):
                yield name, [bytes(66)] * 5 if name == "ada" else shares

    with pytest.raises(WireError, match="do not fit together"):
        collect(cohort.collector(), cohort.ready(), Lying(), least=3)


def test_a_member_that_forgets_can_open_nothing(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    again = opening(cohort, cohort.ready())
    again()
    cohort.member("ada").forget()
    assert [path.name for path in (tmp_path / "ada").iterdir()] == ["00001.json"]
    with pytest.raises(RefusedError, match="nothing was masked"):
        again()
    # A coordinator may say that the run has ended, and continue with it.
    for members in (cohort.ready(), cohort.ready()[:-1]):
        with pytest.raises(RefusedError, match="another sum of round 1"):
            opening(cohort, members)


def test_a_damaged_file_of_the_server_says_so(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path)
    cohort.collect()
    path = tmp_path / "server" / "1.json"
    path.write_text(path.read_text().replace('"masked"', '"maskes"'))
    with pytest.raises(DamageError, match="damaged"):
        cohort.collect()
