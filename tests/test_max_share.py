"""One participant, one bounded voice: what a claim about one's own data can buy."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfedes import Card, ConfigError, Federation, Participant, Payload, cli, configure, open_run
from pfedes.core.aggregation import MEDIANS, AggregationConfig, Voices, bounded, weights_of
from pfedes.core.payload import State, under, within
from pfedes.deploy.versions import own_versions
from pfedes.methods.base import Received, averaged
from pfedes.methods.fd import FD
from pfedes.methods.fedproto import FedProto
from pfedes.population.simulation import Simulation
from running import result, small

COUNTS = st.lists(st.integers(1, 2**53), min_size=1, max_size=30)
SHARES = st.floats(0.01, 1.0, exclude_max=True)


@given(COUNTS, SHARES)
def test_shares_are_bounded_whatever_counts_are_claimed(
    counts: list[int], max_share: float
) -> None:
    kept = bounded(counts, max_share)
    shares = weights_of(kept)
    assert sum(shares) == pytest.approx(1)
    assert max(shares) <= max(max_share, 1 / len(counts)) + 1e-9
    assert max(shares) <= MEDIANS * median(shares) + 1e-9
    # Only what is above a ceiling is cut: order and proportions of the others stay.
    ceiling = max(kept)
    assert kept == [min(count, ceiling) for count in counts]
    # And no more than needed: a ceiling of one more sample would break a bound.
    if ceiling < max(counts):
        more = [min(count, ceiling + 1) for count in counts]
        too_large = (ceiling + 1) / sum(more) > max(max_share, 1 / len(counts)) - 1e-9
        assert too_large or ceiling + 1 > MEDIANS * median(counts)


@given(COUNTS)
def test_nothing_is_bounded_without_a_bound(counts: list[int]) -> None:
    assert bounded(counts, 1.0) == counts


def test_by_hand() -> None:
    assert bounded([100, 200, 300], 0.5) == [100, 200, 300]  # a half is not more than half
    assert bounded([100, 200, 900], 0.5) == [100, 200, 300]
    assert bounded([1, 1, 2**53], 0.5) == [1, 1, 2]
    assert bounded([100, 100, 100, 100, 2**53], 0.5) == [100, 100, 100, 100, 400]  # 4 medians
    assert bounded([100, 2**53, 2**53, 100], 0.4) == [100, 400, 400, 100]  # two at 2/5
    assert bounded([10, 30], 0.5) == [10, 10]  # two of a larger federation
    assert bounded([10], 0.5) == [10]
    assert bounded([5, 10, 15], 0.1) == [5, 5, 5]  # nobody can have less than an equal part


def test_a_line_says_whose_share_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    voices = Voices(0.5)
    assert voices.among({"ada": 100, "ben": 200, "eve": 2700}) == [100, 200, 300]
    voices.log(3)
    assert [record.getMessage() for record in caplog.records] == [
        "round 3: eve counts for 50.0 % instead of 90.0 % (federation.max_share)"
    ]


PEOPLE = [Participant(name=name, model="cnn5", data="digits") for name in ("ada", "ben", "eve")]


def test_only_three_or_more_participants_are_bounded() -> None:
    """Participants, simulated or not, from three on; never clients of a partition."""

    def share(**settings: Any) -> float:
        chosen = {key.replace("__", "."): value for key, value in settings.items()}
        return configure(settings=chosen).max_share

    assert share(partition__clients=10, federation__max_share=0.2) == 1.0
    names = ["ada", "ben", "eve"]
    assert share(federation__participants=names) == 0.5
    assert share(federation__participants=names[:2]) == 1.0
    assert share(federation__participants=names, federation__max_share=0.4) == 0.4
    assert configure(participants=PEOPLE).max_share == 0.5
    assert configure(participants=PEOPLE[:2]).max_share == 1.0
    for wrong in (0, 1.5, "half"):
        with pytest.raises(ConfigError, match=r"federation\.max_share"):
            configure(settings={"federation.max_share": wrong})


@pytest.mark.parametrize("method", ["pfedes", "fedproto"])
def test_the_bits_of_partitions_stay(method: str, tmp_path: Path) -> None:
    """However uneven they are: published results do not depend on what participants may claim."""
    uneven = {"partition__kind": "dirichlet", "partition__alpha": 0.2, "train__rounds": 1}
    runs = [
        Federation(small(method, **uneven, federation__max_share=share), out=tmp_path / name).run()
        for name, share in {"bound": 0.26, "free": 1.0}.items()
    ]
    sizes = [card.samples for card in runs[0].store.cards(runs[0].manifest)]
    assert bounded(sizes, 0.26) != sizes  # it would have mattered
    assert result(runs[0]) == result(runs[1])


def received(name: str, samples: int, **classes: int) -> Card:
    held = {int(label[1:]): count for label, count in classes.items()}
    return Card(name, samples, (3, 8, 8), classes=held or None, width=2)


def context(method: str) -> Any:
    return replace(Simulation(small(method, train__rounds=1)).context(1), max_share=0.5)


def test_averaged_parameters() -> None:
    uploads = [
        Received(received(name, samples), Payload({"x": torch.tensor([value])}))
        for name, samples, value in [("ada", 10, 1.0), ("ben", 30, 1.0), ("eve", 2**53, 7.0)]
    ]
    ctx = context("pfedes")
    assert averaged(uploads, ctx)["x"].item() == 4.0
    assert averaged(uploads, ctx, "uniform")["x"].item() == 3.0
    assert averaged(uploads, replace(ctx, max_share=1.0))["x"].item() == 7.0


def test_prototypes_class_by_class(caplog: pytest.LogCaptureFixture) -> None:
    uploads = [
        Received(
            received(name, sum(counts.values()), **{f"c{y}": n for y, n in counts.items()}),
            Payload(
                {"prototypes": torch.full((len(counts), 2), value)},
                {"labels": list(counts), "counts": list(counts.values())},
            ),
        )
        for name, counts, value in [
            ("ada", {0: 10, 1: 5}, 1.0),
            ("ben", {0: 30}, 1.0),
            ("eve", {0: 2**50, 1: 2**50, 2: 4}, 7.0),
        ]
    ]
    state = State({"prototypes": torch.zeros(0, 2)}, {"labels": []})
    found = FedProto().aggregate(state, uploads, context("fedproto"))
    assert found.tensors["prototypes"][:, 0].tolist() == [4.0, 4.0, 7.0]  # the last is hers alone
    assert caplog.text.count("eve counts for 50.0 % instead of 100.0 %") == 1


def test_counts_of_prototypes_are_those_of_the_card() -> None:
    card = received("eve", 15, c0=10, c1=5)
    spec = FedProto().allowed(card, context("fedproto")).up
    tensors = {"prototypes": torch.zeros(2, 2)}
    spec.check(Payload(tensors, {"labels": [0, 1], "counts": [10, 5]}))
    for counts in ([5, 10], [10, 5, 1], [15, 1], [10, 0]):
        with pytest.raises(Exception, match="counts"):
            spec.check(Payload(tensors, {"labels": [0, 1], "counts": counts}))


def test_answers_label_by_label() -> None:
    method, ctx = FD(averaging="weighted"), context("fd")
    uploads = [
        Received(received(name, count, c0=count),
                 Payload({"outputs": torch.full((1, ctx.classes), value)}, {"labels": [0]}))
        for name, count, value in [("ada", 10, 1.0), ("ben", 10, 1.0), ("eve", 2**50, 7.0)]
    ]  # fmt: skip
    state = method.aggregate(State(), uploads, ctx)
    # Of two others one has no more than half; with eve's report left out nothing of hers is there.
    for card, expected in ((uploads[0].card, 4.0), (uploads[2].card, 1.0)):
        assert method.download(state, card, ctx).tensors["targets"][0, 0].item() == expected


@pytest.fixture
def sites(tmp_path: Path) -> Any:
    pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")
    from pfedes.deploy.coordinator.fleet import Answered, NoMessage
    from pfedes.deploy.coordinator.layout import Layout
    from sites import Sites

    class Uploading(Sites):
        """Two honest participants, and one whose claims and uploads a test chooses."""

        def __init__(self, layout: Layout) -> None:
            people = {"federation.participants": ["ada", "ben", "eve"], "train.rounds": 2}
            super().__init__(layout, **people)
            self.shapes["eve"] = (3, 8, 8)
            self.samples = {"ada": 100, "ben": 100, "eve": 100}
            self.totals = dict.fromkeys(self.samples, (47, 180))
            self.parameter: dict[str, float] = {}  # what everything in an upload is

        def ask(self, messages: Mapping[str, Payload], timeout: int) -> Iterator[Answered]:
            for site, message in messages.items():
                if message.meta["kind"] in ("answer", "score"):
                    yield site, self.worked(site, message)
                else:
                    yield from super().ask({site: message}, timeout)

        def answer(self, site: str, kind: str) -> Payload | NoMessage:
            if kind != "enroll":
                return super().answer(site, kind)
            card = json.dumps(asdict(Card(site, self.samples[site], self.shapes[site])))
            told = under("up/", {"card": card, **own_versions()})
            return Payload({}, {"client": site, "kind": "reply", **told})

        def worked(self, site: str, message: Payload) -> Payload:
            val, test = self.totals[site]
            scores = {"val_correct": val, "val_total": val, "test_correct": test,
                      "test_total": test}  # fmt: skip
            if message.meta["kind"] == "score":
                return Payload({}, {"client": site, "kind": "scored", **scores})
            told: dict[str, Any] = {
                **{key: message.meta[key] for key in ("run", "round", "base")},
                "samples": self.samples[site],
                "loss": 0.5,
                "state": "0" * 64,
                "zeros": 0.0,
                **scores,
            }
            tensors = {
                name: torch.full_like(tensor, self.parameter[site])
                if site in self.parameter
                else tensor
                for name, tensor in message.tensors.items()
            }
            return Payload(tensors, {"client": site, "kind": "reply", **under("up/", told)})

        def extractor(self) -> Mapping[str, torch.Tensor]:
            run = open_run(self.layout.run)
            return within("", run.store.server_state(run.manifest).tensors)

    return Uploading(Layout(tmp_path / "federation"))


def test_a_card_does_not_buy_the_aggregate(sites: Any) -> None:
    sites.samples["eve"] = 10**12
    sites.parameter["eve"] = 7.0
    run = sites.coordinate()
    assert [row["status"] for row in run.rounds] == ["ok", "ok"]
    # Half of what she sends, and half of that again: never all of it.
    for parameter in sites.extractor().values():
        assert 7 * 0.75 - 1 < parameter.min() <= parameter.max() < 7 * 0.75 + 1
    log = (run.directory / "run.log").read_text()
    assert "round 1: eve counts for 50.0 % instead of 100.0 % (federation.max_share)" in log


def test_the_norm_that_serve_sets_rejects_a_large_change(sites: Any) -> None:
    """Every parameter at 7 is a change of about 147."""
    from pfedes.deploy.coordinator.terms import with_norm

    people = ["ada", "ben", "eve"]
    plain = sites.configured(**{"federation.participants": people, "train.rounds": 1})
    sites.config = with_norm(plain.model_copy(update={"aggregation": AggregationConfig()}))
    sites.parameter["eve"] = 7.0
    run = sites.coordinate()
    reasons = {row["client"]: row["reason"] for row in run.clients}
    assert reasons["eve"].startswith("it differs from the download by 14")
    assert reasons["ada"] == reasons["ben"] == ""


def test_a_robust_rule_is_recommended_where_there_are_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = AggregationConfig()
    assert rule.advice(4) is None
    assert AggregationConfig(kind="median").advice(9) is None
    assert "aggregation.kind" in (rule.advice(5) or "")
    (tmp_path / "ada.toml").write_text('name = "ada"\nmodel = "cnn5"\ndata = "digits"\n')
    for count, recommended in ((5, True), (4, False)):
        names = ", ".join(f'"p{number}"' for number in range(count))
        digits = ", ".join(f'"{digit}"' for digit in range(10))
        terms = f"[federation]\nparticipants = [{names}]\nclasses = [{digits}]\n"
        (tmp_path / "terms.toml").write_text(terms)
        assert cli.execute(["check", "ada.toml", "--federation", "terms.toml"]) == 0
        assert ("note: with 5 participants a robust rule" in capsys.readouterr().out) is recommended


def test_an_impossible_card_is_refused(sites: Any) -> None:
    sites.config = sites.configured(
        **{"federation.participants": ["ada", "ben", "eve"], "federation.quorum": 2}
    )
    sites.samples["eve"] = 2**53
    run = sites.coordinate()
    assert run.manifest.clients.keys() == {"ada", "ben"}
    assert "more than 1,000,000,000,000 samples" in sites.fleet.refusals["eve"]


def test_totals_of_scores_cannot_change(sites: Any) -> None:
    class Later(type(sites)):  # type: ignore[misc]  # the class lives in the fixture
        def worked(self, site: str, message: Payload) -> Payload:
            if site == "eve" and message.meta["round"] == 2:
                self.totals["eve"] = (2**52, 2**52)
            return Payload(*asdict(super().worked(site, message)).values())

    sites.__class__ = Later
    run = sites.coordinate()
    rejected = [
        (row["round"], row["client"], row["reason"]) for row in run.clients if row["reason"]
    ]
    assert [row[:2] for row in rejected] == [(2, "eve")]
    assert "but the run began with 47 and 180" in rejected[0][2]
    assert run.manifest.clients["eve"].version == 1
    assert run.manifest.clients["eve"].scores.test_total == 180


def test_a_participant_that_returns_with_other_data_is_refused(sites: Any) -> None:
    """Also in another job of another process: what counts is in the run."""
    people = {"federation.participants": ["ada", "ben", "eve"]}
    sites.coordinate()
    sites.samples["eve"] = 2**30
    sites.config = sites.configured(**people, **{"train.rounds": 3})
    run = sites.coordinate()
    assert [row["selected"] for row in run.rounds] == [3, 3, 2]
    assert "1073741824 training samples, but it enrolled with 100" in sites.fleet.refusals["eve"]
    # With the data it enrolled with it is welcome, but not with other totals.
    sites.samples["eve"], sites.totals["eve"] = 100, (47, 2**52)
    sites.config = sites.configured(**people, **{"train.rounds": 4})
    run = sites.coordinate()
    last = {row["client"]: row["status"] for row in run.clients if row["round"] == 4}
    assert last == {"ada": "ok", "ben": "ok", "eve": "rejected"}


def test_scores_after_aggregation_are_checked_too(sites: Any) -> None:
    people = {"federation.participants": ["ada", "ben", "eve"], "train.rounds": 1}
    sites.config = sites.configured(**people, **{"evaluate.after_aggregation": True})
    asked: list[str] = []

    class Later(type(sites)):  # type: ignore[misc]  # the class lives in the fixture
        def worked(self, site: str, message: Payload) -> Payload:
            asked.append(site)
            lies = site == "eve" and asked.count("eve") == 3  # after the first score and the reply
            self.totals["eve"] = (2**52, 2**52) if lies else (47, 180)
            return Payload(*asdict(super().worked(site, message)).values())

    sites.__class__ = Later
    run = sites.coordinate()
    assert run.manifest.clients["eve"].scores.test_total == 180
    assert "eve was not evaluated: scores out of" in (run.directory / "run.log").read_text()
