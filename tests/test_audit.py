"""An audit finds what is planted, finds nothing where there is nothing, and counts right."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from commands import command, complaint
from pages import Page
from pfedes import Federation, Listener, Run, open_run
from pfedes.audit import identification
from pfedes.audit.attempts import AttackResult, judged
from pfedes.audit.attributes import CLASSES, Guessing, presence
from pfedes.audit.clock import Clock
from pfedes.audit.crafted import CRAFTED
from pfedes.audit.guessing import Line, most_telling
from pfedes.audit.intervals import (
    Ranking,
    Score,
    area_between,
    for_many,
    resampled,
    share_of,
)
from pfedes.audit.membership import (
    AREA,
    MEMBERSHIP,
    Candidates,
    attempts_on_members,
    caught,
    mean_area,
)
from pfedes.audit.pixels import thief_of
from pfedes.audit.releases import Sampler, attempt_on_noise
from pfedes.audit.shadows import Shadow, Shadows, Stranger, extractor_of, split
from pfedes.audit.sights import AS_SENT, BITS, SIGNS, Noise, numbers_sent, seen_by
from pfedes.data import sources
from pfedes.data.dataset import Dataset, Progress, silent
from pfedes.data.sources import DataConfig
from pfedes.fleet.serial import with_threads
from pfedes.population.simulation import Simulation
from pfedes.privacy.encoding import Whole, flat
from pfedes.privacy.noise import NoiseStream, gaussian
from pfedes.results.findings import Finding, Situation
from running import small, tiny

REFERENCE = Path(__file__).parents[1] / "docs" / "reference.md"
SHADOWS = {
    "data__limit": 60,
    "partition__clients": 6,
    "partition__classes_per_client": 2,
    "models__pool": ["cnn5"],
    "train__rounds": 1,
}
"""A shadow client trains for one step of each phase."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As an audit computes: by the run's threads, of which there is one by default."""
    with with_threads(1):
        yield


def trained(method: str = "pfedes", out: str = "run", **settings: object) -> Run:
    config = small(method, **{**SHADOWS, "method__extractor_epochs": 1, **settings})
    return Federation(config, out=Path(out)).run()


def made_by(run: Run, cohorts: int) -> tuple[Shadows, list[Shadow]]:
    shadows = Shadows(run)
    return shadows, [shadow for number in range(cohorts) for shadow in shadows.cohort(number)]


def usual_noise(made: Sequence[Shadow]) -> Noise:
    return Noise(float(np.median([shadow.size for shadow in made])), 0.05, 0)


def found_in(
    made: Sequence[Shadow], looks: Sequence[str], situation: Situation = "as it is"
) -> dict[str, Finding]:
    """What the attack on classes comes to, by what it looks at."""
    learn, test = split(made)
    noise = usual_noise(made)
    known, seen = (seen_by(situation, part, noise) for part in (learn, test))
    views = zip(known.views(numbers_sent(learn)), seen.views(numbers_sent(test)), strict=True)
    guessing = Guessing(learn, test, 0)
    attempts = [
        next(guessing.by(situation, pair, seen.groups)) for pair in views if pair[0].name in looks
    ]
    return {finding.sees: finding for finding in judged(attempts)}


@pytest.mark.parametrize(("kind", "where"), [("InWeights", AS_SENT), ("InBits", BITS)])
def test_a_planted_leak_is_found(kind: str, where: str) -> None:
    """180 shadow clients take the time: fewer are too few to tell."""
    _, made = made_by(trained(f"leaky:{kind}"), 30)
    found = found_in(made, [where])
    assert found[where].verdict == "leak"
    assert (found[where].value or 0) > 0.8
    assert abs((found[where].shuffled or 0) - 0.5) < 0.15


Load = Callable[[DataConfig, Progress], Dataset]


@pytest.fixture
def shuffled_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Load = sources.load

    def shuffled(config: DataConfig, progress: Progress) -> Dataset:
        found = load(config, progress)
        labels = np.random.default_rng(0).permutation(found.labels)
        return replace(found, labels=labels)

    monkeypatch.setattr(sources, "load", shuffled)


@pytest.mark.usefixtures("shuffled_labels")
def test_shuffled_labels_give_nothing_away() -> None:
    """As long as the two above, for the same reason."""
    shadows, made = made_by(trained(), 30)
    found = found_in(made, (AS_SENT, SIGNS, BITS))
    verdicts = {name: finding.verdict for name, finding in found.items()}
    assert verdicts == dict.fromkeys((AS_SENT, SIGNS, BITS), "none found")
    areas = [finding for finding in members_in(shadows, made) if finding.measure == AREA]
    assert {finding.situation: finding.verdict for finding in areas} == dict.fromkeys(
        ("as it is", "local noise", "secure sum"), "none found"
    )


@pytest.mark.repeat
@pytest.mark.parametrize("situation", ["as it is", "local noise", "secure sum"])
def test_planted_leaks_are_found_with_more_clients_and_in_every_situation(
    situation: Situation,
) -> None:
    run = trained("leaky:InWeights", partition__clients=10, data__limit=200)
    _, made = made_by(run, 45)
    found = found_in(made, (AS_SENT, SIGNS, BITS), situation)
    leaks = {name for name, finding in found.items() if finding.verdict == "leak"}
    # Noise of a twentieth of the clip does not hide what is sent on purpose; a sum does.
    assert leaks == (set() if situation == "secure sum" else {AS_SENT, SIGNS})


def members_in(shadows: Shadows, made: Sequence[Shadow]) -> list[Finding]:
    return judged(list(attempts_on_members(shadows, made, usual_noise(made), 0, silent)))


def learned_by_heart(
    shadows: Shadows, simulation: Simulation, number: int, name: str, model: nn.Module
) -> Shadow:
    """A client whose extractor helps a model, which the attacker has, with its samples alone."""
    train = simulation.population.client(name, model).train.batch(slice(None))
    extractor = extractor_of(shadows, train.x, shadows.state.tensors)
    optimiser = SGD(extractor.parameters(), lr=0.02, momentum=0.9)
    for _ in range(30):
        optimiser.zero_grad()
        cross_entropy(model(extractor(train.x)), train.y).backward()
        optimiser.step()
    sent = flat(shadows.state.tensors)
    change = flat(extractor.state_dict()) - sent
    samples, size = len(train), float(np.linalg.norm(change))
    return Shadow(
        *(number, name, "cnn5", samples, samples, np.ones(10)),
        *(sent, change, size, True, {}),
    )


def test_samples_learned_by_heart_are_found() -> None:
    shadows = Shadows(trained())
    torch.manual_seed(0)
    public = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).requires_grad_(False)
    shadows.strangers.append(Stranger("public", public, np.ones(10)))
    made = []
    for number in range(2, 32, 3):
        simulation = shadows.simulation(number)
        for name in simulation.population.names:
            made.append(learned_by_heart(shadows, simulation, number, name, public))
    area, caught_, *_, in_sum, _ = members_in(shadows, made)
    assert (area.verdict, area.situation) == ("leak", "as it is")
    assert abs((area.shuffled or 0) - 0.5) < 0.1
    assert caught_.verdict == "too few to tell"  # each client has two samples or so for testing
    assert (in_sum.verdict, in_sum.situation) == ("none found", "secure sum")


def test_members_by_hand() -> None:
    one = Candidates(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, False, False]))
    other = Candidates(np.array([0.0, 1.0]), np.array([True, False]))
    assert mean_area([one, other])(np.array([1.0, 1.0])) == (0.75 + 0) / 2
    assert mean_area([one, other])(np.array([3.0, 1.0])) == 0.75 * 3 / 4
    # 300 others, of whom three may be above: the fourth highest is the limit.
    scores, members = np.arange(400.0), np.arange(400) % 4 == 0
    assert caught([Candidates(scores, members)])(np.ones(1)) == 1 / 100
    scores[members] += 1000
    assert caught([Candidates(scores, members)])(np.ones(1)) == 1


def test_one_sample_is_found_unless_limits_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identification, "CANDIDATES", 10)
    monkeypatch.setattr(identification, "TRIALS", 60)
    shadows, _ = made_by(trained(), 1)
    attempts = identification.attempts_on_samples(shadows, 0.05, Clock(60), silent)
    found = {
        finding.situation: finding
        for finding in judged(list(attempts))
        if finding.sees == identification.KNOWN
    }
    assert {finding.baseline for finding in found.values()} == {0.1}
    assert {situation: finding.verdict for situation, finding in found.items()} == {
        "as it is": "leak",
        "local noise": "leak",
        "secure sum": "leak",
        "default limits": "none found",
    }
    assert found["as it is"].value == 1


def test_few_clients_are_too_few_to_tell() -> None:
    shadows = [shadow(number // 6, np.eye(10)[number % 6]) for number in range(150)]
    learn, test = split(shadows)
    seen = [seen_by("as it is", part, Noise(1, 1, 0)) for part in (learn, test)]
    pair = [
        part.views(numbers_sent(part_of))[0]
        for part, part_of in zip(seen, (learn, test), strict=True)
    ]
    for at_most, verdict in ((len(test), "too few to tell"), (None, "leak")):
        guessing = Guessing(learn, test, 0)
        (attempt, _) = guessing.by("as it is", (pair[0], pair[1]), seen[1].groups)
        if at_most is None:
            attempt = replace(attempt, is_enough=True)
        assert judged([attempt])[0].verdict == verdict
    assert len(test) < 60


def shadow(cohort: int, change: np.ndarray, samples: int = 1) -> Shadow:
    """One whose change says which class it has."""
    return Shadow(
        *(cohort, "x", "cnn5", samples, samples, change),
        *(np.zeros(10), change, 1.0, True, {}),
    )


def test_a_secure_sum_shows_the_mean_by_samples() -> None:
    first, second = np.eye(10)[:2]
    pair = [shadow(0, first, samples=3), shadow(0, second, samples=1), shadow(1, second)]
    seen = seen_by("secure sum", pair, Noise(1, 1, 0))
    assert seen.changes[0, :3].tolist() == seen.changes[1, :3].tolist() == [0.75, 0.25, 0]
    assert seen.changes[2, 1] == 1
    assert seen.groups.tolist() == [0, 0, 1]


def test_noise_is_as_large_as_it_says_on_a_clipped_change() -> None:
    noise = Noise(0.5, 0.1, 7)
    drowned = noise(np.r_[np.full(4, 1.0), np.zeros(996)], 2.0)  # of norm 2, clipped to 0.5
    assert abs(drowned[4:].std() / 0.05 - 1) < 0.1
    assert np.allclose(drowned[:4], 0.25, atol=0.25)
    assert np.array_equal(Noise(0.5, 0.1, 7)(np.zeros(9)), Noise(0.5, 0.1, 7)(np.zeros(9)))


def test_areas_by_hand() -> None:
    assert area_between(np.array([3.0, 1.0]), np.array([2.0, 0.0])) == 0.75
    assert area_between(np.array([1.0]), np.array([1.0])) == 0.5
    scores = np.array([[3.0, 0], [1, 0], [2, 0], [0, 0]])
    truth = np.array([[True, True], [True, True], [False, True], [False, True]])
    ranking = Ranking(scores, truth)  # the second class is everybody's, and tells nothing
    assert ranking.area(np.ones(4)) == 0.75
    assert ranking.area(np.array([1.0, 0, 1, 1])) == 1.0
    assert ranking.area(np.array([1.0, 1, 0, 2])) == 1.0
    assert np.isnan(ranking.area(np.array([0.0, 0, 1, 1])))
    assert not Ranking(scores[:, 1:], truth[:, 1:])


def test_shares_by_hand() -> None:
    nothing, everything = share_of(0, 10, 0.5), share_of(10, 10, 0.5)
    assert (nothing.low, everything.high) == (0, 1)
    assert nothing.high == pytest.approx(1 - 0.025**0.1)  # all ten miss
    assert everything.low == pytest.approx(0.025**0.1)
    assert everything.chance == pytest.approx(0.5**10)
    assert share_of(80, 80, 0.22).low == pytest.approx(0.955, abs=0.001)
    one = share_of(1, 2, 0.5)
    assert one.chance == 0.75
    assert (one.low, one.high) == pytest.approx((1 - 0.975**0.5, 0.975**0.5))


def test_intervals_of_a_mean_are_those_of_the_normal_distribution() -> None:
    values = np.random.default_rng(1).normal(1, 1, 400)

    def mean(weights: np.ndarray) -> float:
        return float(np.average(values, weights=weights))

    found = resampled(mean, np.arange(400), 0.9, np.random.default_rng(0))
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    # Pairs that are drawn together are half as many.
    twice = np.repeat(values[:200], 2)
    paired = resampled(
        lambda weights: float(np.average(twice, weights=weights)),
        np.repeat(np.arange(200), 2),
        0.9,
        np.random.default_rng(0),
    )
    expected = 2 * 1.96 * twice.std() / np.sqrt(200)
    assert paired.high - paired.low == pytest.approx(expected, rel=0.1)


def test_many_attacks_by_hand() -> None:
    assert for_many([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert for_many([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    strong, weak = Score(0.7, 0.6, 0.8, 0.001), Score(0.6, 0.51, 0.7, 0.02)
    alone, *_ = judged([attempt(weak)])
    assert alone.verdict == "leak"
    among = judged([attempt(weak), attempt(strong), attempt(Score(0.5, 0.4, 0.6, 0.5))])
    assert [finding.verdict for finding in among] == ["none found", "leak", "none found"]
    assert judged([attempt(None)])[0].verdict == "not tried"


def attempt(estimate: Score | None) -> AttackResult:
    return AttackResult(CLASSES, AS_SENT, "as it is", "area", 0.5, estimate, 60)


def halved(variance: int, count: int, stream: NoiseStream) -> Whole:
    return gaussian(variance // 4, count, stream)


def absent(variance: int, count: int, stream: NoiseStream) -> Whole:
    return np.zeros(count, np.int64)


@pytest.mark.parametrize(
    ("sampler", "verdict"), [(gaussian, "none found"), (halved, "leak"), (absent, "leak")]
)
def test_too_little_noise_is_caught(sampler: Sampler, verdict: str) -> None:
    (finding,) = judged([attempt_on_noise(0, 5000, sampler)])
    assert finding.verdict == verdict
    assert finding.baseline == pytest.approx(4.377178, abs=1e-6)
    if sampler is gaussian:  # and it is no blunt weapon
        assert 3.5 < (finding.value or 0) < 4.377178


@pytest.mark.repeat
def test_a_tenth_less_noise_is_caught_by_more_releases() -> None:
    def less(variance: int, count: int, stream: NoiseStream) -> Whole:
        return gaussian(variance * 81 // 100, count, stream)

    assert judged([attempt_on_noise(0, sampler=less)])[0].verdict == "leak"


def test_columns_that_tell_most() -> None:
    rows = np.array([[0.0, 5, 1, 7], [0, 5, 2, 7], [1, 5, 1, 7], [1, 5, 2, 8]])
    assert most_telling(rows, np.array([0, 0, 1, 1]), 2).tolist() == [0, 3]


def test_a_class_with_few_samples_does_not_count_as_present() -> None:
    pair = [replace(shadow(0, np.eye(10)[0]), shares=np.r_[0.04, 0.96, np.zeros(8)])]
    assert presence(pair)[0].tolist() == [False, True, *[False] * 8]


@pytest.fixture
def audited() -> Path:
    trained(runtime__report=True)
    done = command("audit", "run", "--minutes", "0.02")
    assert done.returncode == 0, done.stderr
    assert "left out for lack of time" in done.stdout
    return Path("run")


def test_the_command_writes_a_file_and_a_section(audited: Path) -> None:
    tree = json.loads((audited / "audit.json").read_text())
    _, _, rest = REFERENCE.read_text().partition("## Fields of `audit.json`")
    named = set(re.findall(r"`([a-z_]+)`", rest.partition("\n## ")[0]))
    assert tree.keys() | tree["findings"][0].keys() <= named
    page = Page((audited / "report.html").read_text())
    assert ("h2", "What uploads tell") in page.headings
    table = page.table("Attacks on what clients send")
    assert table.column("verdict") == [finding["verdict"] for finding in tree["findings"]]
    assert "safe" not in table.column("verdict")
    assert CLASSES in table.column("attack")
    # What comes from a stranger is refused in a line, and the rest of the page is there.
    for text, why in (
        (b"{}", "is damaged"),
        (json.dumps({**tree, "run": "x"}).encode(), "belongs to another run"),
    ):
        (audited / "audit.json").write_bytes(text)
        assert command("report", str(audited)).returncode == 0
        page = Page((audited / "report.html").read_text())
        assert f"Not shown: run/audit.json {why}" in page.text


def test_a_secret_that_one_client_has_is_learned_without_its_variance() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4))
    rows[2] += 10
    truth = np.arange(9) == 2
    assert Line(4).fit(rows, truth).scores(rows).argmax() == 2


def test_of_a_secure_sum_only_sums_are_seen() -> None:
    run = trained(privacy__secure_sum=True, partition__clients=3)
    done = command("audit", "run", "--minutes", "0.02", "--json")
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)["findings"]
    numbers = {f["situation"] for f in findings if f["attack"] in ("identification", CRAFTED)}
    assert numbers == {"secure sum", "default limits"}
    # A summand says what its client's upload would have been, to the rounding of the sum.
    plain = trained(partition__clients=3, out="plain")
    (summed, *_), (sent, *_) = (Shadows(each).cohort(0) for each in (run, plain))
    assert np.abs(summed.change - sent.change).max() < 1e-6
    assert np.abs(sent.change).max() > 1e-5


def test_a_thief_sees_the_sum_of_all_who_are_in_it() -> None:
    shadows = Shadows(trained(partition__clients=4))
    alone, summed = (thief_of(shadows, situation) for situation in ("as it is", "secure sum"))
    assert len(summed.members) == 3
    assert len(summed.known) > len(alone.known)
    sent = alone.crafted(4)
    changes = []
    for name in summed.members:
        alone.members = (name,)
        changes.append(alone.change("x", sent))
    total = summed.change("x", sent)
    assert total is not None
    parts = [change["conv1.weight"] for change in changes if change is not None]
    assert len(parts) == 3
    assert torch.allclose(total["conv1.weight"], torch.stack(parts).sum(0))
    assert bool(total["conv1.weight"].any())
    assert thief_of(shadows, "default limits").change("x", sent) is None


@pytest.mark.parametrize("method", ["standalone", "fedkd", "fedproto"])
def test_other_methods_get_the_attacks_that_apply_to_them(method: str) -> None:
    config = tiny(method, runtime__report=False)
    Federation(config, out=Path("run")).run()
    done = command("audit", "run", "--minutes", "0.02", "--json")
    assert done.returncode == 0, done.stderr
    verdicts = {f["attack"]: f["verdict"] for f in json.loads(done.stdout)["findings"]}
    assert verdicts[MEMBERSHIP] == verdicts[identification.IDENTIFICATION] == "not tried"
    assert verdicts["mechanism"] == "none found"


class Stop(Listener):
    """Interrupts after so many clients, of two in a round."""

    def __init__(self, after: int) -> None:
        self.left = after

    def client_done(self, verdict: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("after", "round"), [(1, 0), (3, 1)])
def test_an_interrupted_run_is_audited_as_far_as_it_got(after: int, round: int) -> None:
    config = tiny("pfedes", train__rounds=2, method__extractor_epochs=1, runtime__report=False)
    with pytest.raises(KeyboardInterrupt):
        Federation(config, out=Path("run"), listener=Stop(after)).run()
    done = command("audit", "run", "--minutes", "0.02", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["round"] == round


def test_participants_with_own_data_have_no_shadows(tmp_path: Path) -> None:
    from golden import tiny as golden_tiny

    run = Federation(golden_tiny("images", "dense", train__rounds=1), out=tmp_path / "own").run()
    done = command("audit", str(run.directory), "--json")
    assert done.returncode == 0, done.stderr
    verdicts = {f["attack"]: f["verdict"] for f in json.loads(done.stdout)["findings"]}
    assert verdicts[CLASSES] == "not tried"
    assert verdicts["mechanism"] == "none found"
    assert complaint(command("audit", str(tmp_path))).startswith("pfedes: ")
    assert open_run(run.directory).finished
