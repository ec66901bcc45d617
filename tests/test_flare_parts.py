"""Parts of federations across machines that need no processes: envelopes, lists, keys, files."""

import json
import stat
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from cryptography import x509
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from commands import refused
from pfedes import Card, Config, ConfigError, StoreError, WireError, cli, configure
from pfedes.cli import _lazy
from pfedes.config.participant import read_participant
from pfedes.core.payload import Payload, under
from pfedes.core.protocol import Failure, Task
from pfedes.core.wire import WireSpec
from pfedes.deploy.coordinator.controller import _received
from pfedes.deploy.coordinator.fleet import FlareFleet, NoMessage
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.quorum import PATIENCE, gather
from pfedes.deploy.coordinator.serve import Serving, admit, prepare
from pfedes.deploy.coordinator.terms import LARGEST_CHANGES, with_norm
from pfedes.deploy.filter_rules import allowed_by
from pfedes.deploy.flare_config import write_server
from pfedes.deploy.kit import AUTHORITY, CERTIFICATE, KEY
from pfedes.deploy.messages import CONTENT, to_payload, to_shareable
from pfedes.deploy.participant.filter import OnlyAgreed
from pfedes.deploy.participant.join import Joining
from pfedes.deploy.rehearsal import federation_of, write_participant
from pfedes.deploy.versions import own_versions

LIST: dict[str, Any] = {
    "tensors": {"a": [{"shape": [2, {"most": 3}], "dtype": "float32"}]},
    "values": ["kind", "up/loss"],
}


def test_envelopes() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "n": torch.tensor([7])}
    payload = Payload(tensors, {"flops": 2**80, "name": "ada", "versions": [1, 2]})
    assert to_payload(to_shareable(payload)).digest() == payload.digest()
    whole = to_shareable(payload)[CONTENT]
    arrays = DXO(DataKind.WEIGHTS, {"a": np.ones(2)}).to_shareable()
    for wrong in (Shareable(), arrays, *map(_envelope, (None, "text", b"", whole[:-1]))):
        with pytest.raises(WireError):
            to_payload(wrong)


def _envelope(content: object) -> Shareable:
    envelope = Shareable()
    envelope[CONTENT] = content
    return envelope


@pytest.mark.parametrize(
    ("tensors", "meta", "why"),
    [
        ({"a": torch.zeros(2, 2)}, {"kind": "reply"}, ""),
        ({"a": torch.zeros(2, 4)}, {}, "a is not on the list"),
        ({"a": torch.zeros(2, 3, dtype=torch.float64)}, {}, "a is not on the list"),
        ({"a": torch.zeros(2)}, {}, "a is not on the list"),
        ({"b": torch.zeros(2, 2)}, {}, "b is not on the list"),
        ({}, {"up/diagnosis": "flu"}, "up/diagnosis is not on the list"),
        ({}, {"kind": "x" * 129}, "kind is longer than anything"),
        ({}, {"kind": 2**81}, "kind is longer than anything"),
        ({}, {"kind": ["flu"]}, "kind is longer than anything"),
        ({}, {"kind": [1] * 10_001}, "kind is longer than anything"),
        ({}, {"kind": {"a": "flu"}}, "kind is longer than anything"),
    ],
)
def test_the_sites_filter(tensors: dict[str, Any], meta: dict[str, Any], why: str) -> None:
    message = to_shareable(Payload(tensors, meta))
    if not why:
        message["note"] = "patient 7"
        passed = OnlyAgreed(**LIST).process(message, FLContext())
        assert to_payload(passed).digest() == to_payload(message).digest()
        assert "note" not in passed
        with pytest.raises(WireError, match="4 numbers would leave, 3 may"):
            OnlyAgreed(**LIST, floats=3).process(message, FLContext())
        return
    with pytest.raises(WireError, match=why):
        OnlyAgreed(**LIST).process(message, FLContext())


def test_only_the_code_of_a_failure_leaves() -> None:
    failure = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    failure["secret"] = "patient 7"
    passed = OnlyAgreed(**LIST).process(failure, FLContext())
    assert passed.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "secret" not in passed
    for code in ("patient 7", ["patient 7"]):
        failure.set_return_code(code)
        passed = OnlyAgreed(**LIST).process(failure, FLContext())
        assert passed.get_return_code() == ReturnCode.EXECUTION_EXCEPTION


def test_what_a_site_says_of_a_failure_is_fit_for_a_log() -> None:
    answers: Queue[Any] = Queue()
    result = make_reply("\x1b[2J\nround 7 ok " + "x" * 10**6)
    _received(answers, "ada", WireSpec(), client_task=SimpleNamespace(result=result), fl_ctx=None)
    _, message = answers.get_nowait()
    assert message.why.startswith("its site says ?[2J round 7 ok xxx")
    assert len(message.why) < 1000


def test_the_list_comes_from_participant_toml(tmp_path: Path) -> None:
    home = write_participant(tmp_path / "ada", "ada", 0, 3)
    person = read_participant(home)
    terms = federation_of(("ada",), 1, 8002)
    found = allowed_by(person, terms)
    assert found["tensors"]["conv1.weight"] == [{"shape": [8, 3, 3, 3], "dtype": "float32"}]
    assert "up/zeros" in found["values"]
    assert len(found["tensors"]) == 4
    both = person.model_copy(
        update={"methods": ("pfedes", "fd"), "consents": {"width": 16},
                "limits": person.limits.model_copy(update={"floats": 999})}
    )  # fmt: skip
    # A rule that one of them could not follow is no obstacle: the federation may use another.
    strict = configure(settings={**_settings(terms), "aggregation.kind": "median"})
    found = allowed_by(both, strict)
    assert found["floats"] == 999
    assert found["tensors"]["conv1.weight"] == [{"shape": [16, 3, 3, 3], "dtype": "float32"}]
    assert len(found["tensors"]) > 4


def test_who_can_answer() -> None:
    presence = Presence({"ada": "1", "ben": "2", "dan": "4"}, {"ada": "1", "ben": "0", "cleo": "3"})
    assert [name for name in ("ada", "ben", "cleo", "dan") if presence.has(name)] == ["ada"]
    assert presence.waiting() == ["ben", "dan"]


def test_who_is_asked_into_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pfedes.deploy.coordinator.quorum as module

    layout = Layout(tmp_path)
    config = federation_of(("ada", "ben", "cleo"), 3, 8002)
    assert gather(layout, config, ["ada", "eve"], 999).needed == 2  # before it begins, everybody
    assert gather(layout, config, ["ada"], 999).missing == ["ben", "cleo"]
    assert gather(layout, config, ["cleo", "ada", "ben"], 0).sites == ["ada", "ben", "cleo"]
    two = configure(settings={**_settings(config), "federation.quorum": 2})
    assert gather(layout, two, ["ada", "ben"], 0).is_ready

    class Begun:
        ended_by_budget = False

        class manifest:  # noqa: N801 (an attribute of a run)
            round = 2
            clients = dict.fromkeys(["ada", "ben"])
            ends = staticmethod(lambda rounds, patience: rounds < 3)

    monkeypatch.setattr(module, "begun", lambda layout: Begun)
    monkeypatch.setattr(module, "untold", lambda layout, run: {"ben"})
    assert not gather(layout, config, ["ada"], 0).is_ready  # who was there before, for a while
    assert not gather(layout, config, ["ada", "cleo"], 0).is_ready  # whoever is new
    alone = gather(layout, config, ["ada"], PATIENCE)
    assert (alone.sites, alone.is_ready) == (["ada"], True)
    assert not gather(layout, config, [], PATIENCE).is_ready
    assert not gather(layout, two, ["ada"], PATIENCE).is_ready
    assert gather(layout, config, ["ada", "ben", "cleo"], 0).sites == ["ada", "ben", "cleo"]
    over = configure(settings={**_settings(config), "train.rounds": 2})
    assert not gather(layout, over, ["ada"], PATIENCE).is_ready
    assert gather(layout, over, ["ada", "ben"], 0).sites == ["ben"]


def test_a_job_waits_for_as_many_as_a_round_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer would use up rounds that can only fail."""
    import pfedes.deploy.coordinator.quorum as module

    class Begun:
        ended_by_budget = False

        class manifest:  # noqa: N801 (an attribute of a run)
            round = 2
            clients = dict.fromkeys(["ada", "ben", "cleo"])
            ends = staticmethod(lambda rounds, patience: rounds < 3)

    monkeypatch.setattr(module, "begun", lambda layout: Begun)
    monkeypatch.setattr(module, "untold", lambda layout, run: {"ben"})
    config = federation_of(("ada", "ben", "cleo"), 3, 8002)
    for settings in ({"train.min_uploads": 3}, {"aggregation.kind": "median"}):
        strict = configure(settings={**_settings(config), "train.rounds": 3, **settings})
        assert gather(Layout(tmp_path), strict, ["ada", "ben"], PATIENCE).needed == 1
        assert gather(Layout(tmp_path), strict, ["ada", "ben", "cleo"], PATIENCE).is_ready
        over = configure(settings={**_settings(config), "train.rounds": 2, **settings})
        assert gather(Layout(tmp_path), over, ["ben"], 0).is_ready  # to hear how it ended


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train.min_uploads": 4}, "min_uploads = 4, but a round selects 3 of 3 clients"),
        (
            {"federation.quorum": 2, "aggregation.kind": "median"},
            "'median' needs 3 uploads, but a round selects 2 of 2 clients",
        ),
    ],
)
def test_terms_under_which_no_round_can_succeed(
    settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    terms = _settings(federation_of(("ada", "ben", "cleo"), 3, 8002))
    layout = Layout(tmp_path / "federation")
    with pytest.raises(ConfigError, match=why):
        prepare(layout, configure(settings={**terms, **settings}))
    assert not layout.directory.exists()


def _settings(config: Config) -> dict[str, Any]:
    return {f"federation.{key}": value for key, value in config.federation.model_dump().items()}


def test_nonsense_from_a_site_is_that_sites_failure(tmp_path: Path) -> None:
    """Sites answer with nonsense, for others, or not at all: each is that site's failure."""
    card = json.dumps(asdict(Card("ada", 5, (3, 8, 8))))
    answers: dict[str, Payload | NoMessage] = {}

    def ask(messages: Any, timeout: int) -> Any:
        return [(site, answers[site]) for site in messages]

    versions = under("up/", own_versions())
    good = {"kind": "reply", "client": "ada", "up/card": card, **versions}
    more = json.dumps(asdict(Card("fay", 5, (3, 8, 8), classes={0: 5})))
    few = json.dumps({**asdict(Card("gus", 5, (3, 8, 8))), "samples": 5.5})
    huge = json.dumps(asdict(Card("jim", 5, (2**40, 8, 8))))
    answers |= {
        "ada": Payload({}, good),
        "jim": Payload({}, {"kind": "reply", "client": "jim", "up/card": huge, **versions}),
        "ben": Payload({}, good),
        "fay": Payload({}, {"kind": "reply", "client": "fay", "up/card": more, **versions}),
        "gus": Payload({}, {"kind": "reply", "client": "gus", "up/card": few, **versions}),
        "hal": Payload({}, {"kind": "failure", "client": "hal", "reason": 7}),
        "ida": Payload({}, {"kind": "failure", "client": "ida", "reason": "\ud800\x1b[31m"}),
        "cleo": Payload({}, {"kind": "failure", "client": "cleo", "reason": "refused"}),
        "dan": NoMessage("no answer: TIMEOUT", silent=True, struck=True),
        "eve": Payload({}, {}),
    }
    beckoned: list[str] = []
    terms = federation_of(tuple(answers), 1, 8002)
    fleet = FlareFleet(ask, beckoned.append, terms, sorted(answers), Layout(tmp_path))
    fleet.greet()
    assert fleet.reachable == {"ada"}
    assert fleet.refusals.keys() == {"ben", "cleo", "eve", "fay", "gus", "hal", "ida", "jim"}
    assert all(reason.isprintable() for reason in fleet.refusals.values())
    task = Task("r", "ada", 1, 0, Payload())
    for answer in (
        Payload({}, {"kind": "reply", "client": "ben"}),
        Payload({}, {"kind": "scored", "client": "ada", "val_correct": 1, "val_total": 1,
                     "test_correct": 1, "test_total": 1}),
        Payload({}, {}),
        NoMessage("its site says EXECUTION_EXCEPTION"),
        NoMessage("no answer, says its site"),  # the words decide nothing
    ):  # fmt: skip
        answers["ada"] = answer
        (found,) = fleet.round([task])
        assert isinstance(found, Failure)
        assert fleet.reachable == {"ada"}
    answers["ada"] = NoMessage("TIMEOUT", silent=True, struck=True)
    assert [f.code for f in fleet.round([task]) if isinstance(f, Failure)] == ["silent"]
    assert fleet.reachable == set()
    assert beckoned == ["dan", "ada"]
    assert [f.reason for f in fleet.round([task]) if isinstance(f, Failure)] == ["not connected"]
    fleet.heard("ada")
    assert fleet.reachable == {"ada"}
    scores = {"val_correct": 1, "val_total": 1, "test_correct": 1, "test_total": 1}
    for wrong in (1.0, True, 2**60, None):
        odd: dict[str, Any] = {"kind": "scored", "client": "ada", **scores, "test_correct": wrong}
        answers["ada"] = Payload({}, odd)
        assert [type(answer) for answer in fleet.evaluate([task])] == [Failure]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("kits") / "federation")
    prepare(layout, federation_of(("ada",), 1, 8002))
    return layout


def test_kits_are_for_their_owners_only(layout: Layout) -> None:
    for path in (layout.directory, layout.provision, layout.kits, layout.kits / "ada"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for key in layout.directory.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) & 0o077 == 0
    write_server(layout.server, configure(layout.config))
    resources = (layout.server / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in resources  # where FLARE would keep them, for anybody
    assert str(layout.server / "jobs") in resources
    assert str(layout.server / "snapshots") in resources
    assert prepare(layout, configure(layout.config)) == []
    other = configure(layout.config, settings={"federation.classes": ["a", "b"]})
    with pytest.raises(StoreError, match="holds another federation"):
        prepare(layout, other)


def test_what_an_upload_may_change_is_bounded_by_default(layout: Layout) -> None:
    """A federation that is there already keeps what it has, and so does who names a bound."""
    terms = _settings(federation_of(("ada",), 1, 8002))

    def bound(**settings: Any) -> float:
        chosen = {key.replace("__", "."): value for key, value in settings.items()}
        return with_norm(configure(settings={**terms, **chosen})).aggregation.max_norm

    largest = LARGEST_CHANGES["pfedes"]
    assert bound() == largest
    assert bound(method__name="fedavg", models__pool=["cnn5"]) == LARGEST_CHANGES["fedavg"]
    assert bound(method__name="fd") == bound(method__sharing="local") == 0
    assert bound(aggregation__max_norm=0) == 0
    assert bound(aggregation__max_norm=3) == 3
    assert configure(layout.config).aggregation.max_norm == largest
    before = layout.config.read_text()
    try:
        # As made before there was a default.
        layout.config.write_text(before.replace(f"max_norm = {largest}", "max_norm = 0.0"))
        prepare(layout, configure(settings=terms))
        assert configure(layout.config).aggregation.max_norm == 0
        prepare(layout, configure(settings={**terms, "aggregation.max_norm": 3}))
        assert configure(layout.config).aggregation.max_norm == 3
    finally:
        layout.config.write_text(before)


def test_what_ends_a_job_ends_the_coordinators_command(layout: Layout) -> None:
    layout.write_trouble("1 take part, 3 must")
    with pytest.raises(StoreError, match="1 take part, 3 must"):
        Serving(layout, print)._look()
    assert not layout.trouble.exists()


def test_whatever_a_job_raises_ends_the_coordinators_command(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Untold it would be submitted again, forever."""
    from nvflare.apis.signal import Signal

    import pfedes.deploy.coordinator.controller as module

    class Engine:
        @staticmethod
        def get_clients() -> list[object]:
            return []

    class Context:
        get_engine = Engine

    def fail(*_: object) -> None:
        raise KeyError("nobody\ud800 thought of it")

    panics: list[str] = []
    monkeypatch.setattr(module, "coordinate", fail)
    coordinator = module.Coordinator(str(layout.directory))
    monkeypatch.setattr(coordinator, "system_panic", lambda reason, _: panics.append(reason))
    coordinator.control_flow(Signal(), Context())
    assert len(panics) == 1
    assert "Traceback" in caplog.text
    with pytest.raises(StoreError, match=r"^the coordinator's job failed: KeyError: .*thought of"):
        Serving(layout, print)._look()


def test_a_request_keeps_the_private_key_at_the_participant(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_participant(tmp_path / "dan", "dan", 0, 2)
    assert cli.execute(["request", str(file)]) == 0
    key = tmp_path / "dan" / "state" / "site.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    pem = key.read_bytes()
    Path("dan.csr").unlink()
    Path("dan.csr").mkdir()  # in the way
    assert "cannot write dan.csr: " in refused("request", str(file))
    Path("dan.csr").rmdir()
    assert cli.execute(["request", str(file)]) == 0  # again, for the same key
    assert key.read_bytes() == pem
    words = ["admit", "dan", "--request", "dan.csr", "--federation", str(layout.directory)]
    assert cli.execute(words) == 0
    kit = layout.kits / "dan"
    assert not (kit / KEY).exists()
    root = x509.load_pem_x509_certificate((kit / AUTHORITY).read_bytes())
    signed = x509.load_pem_x509_certificate((kit / CERTIFICATE).read_bytes())
    signed.verify_directly_issued_by(root)
    genuine = x509.load_pem_x509_certificate((layout.kits / "ada" / CERTIFICATE).read_bytes())
    genuine.verify_directly_issued_by(root)
    assert "dan" in signed.subject.rfc4514_string()
    assert configure(layout.config).federation.participants == ("ada", "dan")

    joining = Joining(kit, read_participant(file), print)
    assert joining._key() == key.read_bytes()
    key.write_bytes((layout.kits / "ada" / KEY).read_bytes())
    with pytest.raises(StoreError, match=r"site\.key does not belong to the kit's"):
        joining._key()
    key.unlink()
    with pytest.raises(StoreError, match="the kit has no key, and there is none in"):
        joining._key()
    with pytest.raises(StoreError, match="is not eve's request"):
        admit(layout, "eve", Path("dan.csr"))
    (tmp_path / "x.csr").write_text("nonsense")
    with pytest.raises(StoreError, match="is not a certificate request"):
        admit(layout, "eve", tmp_path / "x.csr")
    assert not (layout.kits / "eve").exists()


def test_wrong_input(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("[federation]\nclasses = ['a', 'b']\n")
    (tmp_path / "p.toml").write_text("name = 'eve'\nmodel = 'cnn1'\ndata = 'digits'\n")
    kit = str(layout.kits / "ada")
    for words, what in (
        (["serve", "f.toml"], "federation.participants must name the participants that may join"),
        (["run", str(layout.config)], "with 'pfedes serve'"),
        (["join", ".", "p.toml"], "is not a kit of a federation"),
        (["join", kit, "p.toml"], "state = '...' must name a directory"),
        (["status", "nowhere"], "holds no federation"),
        (["admit", "eve", "--federation", "nowhere"], "holds no federation"),
    ):
        assert what in refused(*words)
    (tmp_path / "q.toml").write_text("name = 'eve'\nmodel = 'cnn1'\ndata = 'digits'\nstate = 's'\n")
    assert "the kit is for ada, not for eve" in refused("join", kit, "q.toml")


@pytest.mark.parametrize("first", ["nvflare.apis", "cryptography"])
def test_a_command_whose_extra_is_missing_says_so(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {first!r}", name=first)

    monkeypatch.setattr(_lazy, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):  # the extra is there: a fault of ours is not hidden
        _lazy.load("serve")
    monkeypatch.setattr(_lazy, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pfedes serve needs .* 'pfedes\[flare\]'"):
        _lazy.load("serve")
