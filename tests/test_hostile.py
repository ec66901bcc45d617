"""Thousands of generated bad inputs: never anything but a PfedesError, and no file changed."""

import json
import shutil
import tomllib
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pfedes import Config, Payload, PfedesError, configure, open_run
from pfedes.core.aggregation import weights_of
from pfedes.core.client import card_from
from pfedes.core.payload import decode, encode
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.federation.admission import Admission, Verdict
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.messages import from_answer, to_answer
from pfedes.population.simulation import Simulation
from pfedes.results.summary import COUNTERS
from pfedes.store.client_store import ClientStore
from pfedes.store.manifest import Extent, Standing
from pfedes.store.run_store import RunStore
from running import contents, small
from stores import commit, create

CLIENT = "client-0001"

# Anything that JSON or TOML can say, and things that look almost right.
NAMES = st.sampled_from(
    [
        "",
        ".",
        "..",
        "../../x",
        "/etc/passwd",
        "a/b",
        "CON",
        "client-0001",
        "x" * 300,
        "\0",
        "\n",
        "é",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=20)
    | NAMES
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes cut, flipped, overwritten or lengthened."""
    kind = draw(st.sampled_from(["cut", "flip", "overwrite", "insert", "append"]))
    place = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        return data[:place]
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ draw(st.integers(1, 255))]) + data[place + 1 :]
    extra = draw(st.binary(min_size=1, max_size=16))
    if kind == "append":
        return data + extra
    return data[:place] + extra + data[place + (len(extra) if kind == "overwrite" else 0) :]


@st.composite
def altered(draw: st.DrawFn, tree: Any) -> Any:
    """A JSON tree in which one thing somewhere is gone, new, or something else."""
    if isinstance(tree, dict) and tree and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(tree)))
        return {**tree, key: draw(altered(tree[key]))}
    if isinstance(tree, dict) and tree:
        key = draw(st.sampled_from(sorted(tree)))
        rest = {name: value for name, value in tree.items() if name != key}
        return draw(st.sampled_from([rest, {**rest, draw(NAMES): tree[key]}]))
    return draw(ANYTHING)


class NodeSession:
    """A server and a client of the smallest federation, and one honest answer."""

    def __init__(self, place: Path) -> None:
        simulation = Simulation(small(models__pool=["cnn5"], data__limit=80))
        self.method, self.ctx = simulation.method, simulation.context(1)
        self.store = ClientStore(place / "clients")
        self.host: ClientHost = host_of(simulation, self.store)
        self.cards = {card.name: card for card in self.host.cards()}
        state = self.method.start(list(self.cards.values()), self.ctx)
        self.download = self.method.download(state, self.cards[CLIENT], self.ctx)
        self.task = Task("run", CLIENT, 1, 0, self.download)
        answer = self.host.answer(self.task)
        assert isinstance(answer, Reply)
        self.reply = answer.payload
        scored = self.host.score(self.task)
        assert isinstance(scored, Scored)
        self.scored = scored

    def judge(self, answer: Reply | Failure) -> Verdict:
        return Admission([self.task], self.cards, self.method, self.ctx).examine(answer)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> NodeSession:
    return NodeSession(tmp_path_factory.mktemp("desk"))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 9), max_size=5))
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
    value = draw(st.sampled_from([0.0, 1.0, 1e38, float("nan"), float("inf"), -float("inf")]))
    kind = draw(st.sampled_from(kinds))
    safe = 1.0 if not kind.is_floating_point else value
    return torch.full(shape, safe).to(kind)


@given(data=st.data())
def test_no_generated_upload_gets_in(desk: NodeSession, data: st.DataObject) -> None:
    names = st.sampled_from(sorted(desk.reply.tensors)) | NAMES
    changed = {**desk.reply.tensors, **data.draw(st.dictionaries(names, tensors(), max_size=2))}
    if gone := data.draw(st.none() | st.sampled_from(sorted(desk.reply.tensors))):
        changed.pop(gone, None)
    keys = st.sampled_from(sorted(desk.reply.meta)) | NAMES
    about: dict[str, Any] = {
        **desk.reply.meta,
        **data.draw(st.dictionaries(keys, ANYTHING, max_size=2)),
    }
    upload = Payload(changed, about)
    verdict = desk.judge(Reply(data.draw(st.just(CLIENT) | NAMES), upload))
    assert verdict.reason.isprintable()
    if verdict.status == "ok":
        # Only figures that are the client's own to report may differ from the honest answer.
        honest = {**desk.reply.meta, **{key: about[key] for key in OWN}}
        assert Payload(changed, about).digest() == Payload(changed, honest).digest()
        assert all(torch.isfinite(tensor).all() for tensor in changed.values())
        assert {n: t.shape for n, t in changed.items()} == {
            n: t.shape for n, t in desk.reply.tensors.items()
        }


@given(data=st.data())
def test_no_generated_scores_failure_or_card_gets_in(
    desk: NodeSession, data: st.DataObject
) -> None:
    """What sites say besides replies, as the coordinator reads it."""
    said_honestly: list[Scored | Failure] = [
        desk.scored,
        Failure(CLIENT, "missing base", (1, 2)),
    ]
    honest = data.draw(st.sampled_from(said_honestly))
    said = data.draw(altered(from_answer(honest, "").meta))
    with suppress(PfedesError):
        answer, _ = to_answer(Payload({}, said if isinstance(said, dict) else {"kind": said}))
        if isinstance(answer, Scored):
            standing = Standing(scores=answer.scores, local=answer.scores)
            text = standing.model_dump_json(warnings="error")  # it would go into a manifest
            assert Standing.model_validate_json(text).model_dump_json() == text
        if isinstance(answer, Failure):
            assert desk.judge(answer).reason.isprintable()
            assert all(type(version) is int for version in answer.versions or ())
    card = data.draw(altered(asdict(desk.cards[CLIENT])))
    with suppress(PfedesError):
        known = card_from(json.dumps(card))
        assert weights_of([known.samples, 1], "weighted")
        assert card_from(json.dumps(asdict(known))) == known


OWN = (
    *("loss", "zeros", "seconds", "flops", "state"),
    *("val_correct", "val_total", "test_correct", "test_total"),
)


@given(data=st.data())
def test_no_mangled_message_is_decoded(desk: NodeSession, data: st.DataObject) -> None:
    whole = encode(desk.reply)
    message = data.draw(mangled(whole))
    try:
        found = decode(message)
    except PfedesError:
        return
    assert found.digest() == desk.reply.digest()  # padding, or bytes put back as they were


@given(data=st.data())
def test_no_generated_download_gets_in(desk: NodeSession, data: st.DataObject) -> None:
    before = contents(desk.store.root)
    names = st.sampled_from(sorted(desk.download.tensors)) | NAMES
    bad = data.draw(st.dictionaries(names, tensors(), min_size=1, max_size=2))
    about = data.draw(st.dictionaries(NAMES, ANYTHING, max_size=1))
    task = Task(
        data.draw(st.just("run") | NAMES),
        data.draw(st.just(CLIENT) | NAMES),
        data.draw(st.integers(-3, 9)),
        data.draw(st.integers(-3, 9)),
        Payload({**desk.download.tensors, **bad}, about),
    )
    try:
        desk.method.allowed(desk.cards[CLIENT], desk.ctx).down.check(task.download)
        return  # by chance it is a good one
    except PfedesError:
        pass
    assert isinstance(desk.host.answer(task), Failure)
    assert isinstance(desk.host.score(task), Failure)
    assert contents(desk.store.root) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds whose files are small: a mangled byte is a byte that matters."""
    place = tmp_path_factory.mktemp("hostile") / "run"
    store = create(place)
    (place / "environment.json").write_text('{"data": "d", "federation": "f", "torch_build": "2"}')
    commit(store, 1, {"a": 1, "b": 0})
    commit(store, 2, {"a": 2, "b": 2}, best=2)
    extent = store.append("rounds.jsonl", [ROW, {**ROW, "round": 2}], Extent())
    last = store.manifest().model_copy(update={"metrics": {"rounds.jsonl": extent}})
    store.write_manifest(last)
    everything(place)
    return place


ROW: dict[str, Any] = {
    **dict.fromkeys([*COUNTERS, "floats_evaluation", "flops", "seconds"], 0),
    "round": 1,
    "status": "ok",
    "accuracy": 0.5,
}


def everything(directory: Path) -> None:
    """All that reading a run directory can mean."""
    run = open_run(directory)
    for number in run.store.rounds():
        run.store.verify(number)
    assert {**run.summary, **run.environment}


def damaged(run: Path, path: Path, content: bytes) -> None:
    """Reads the run with another content in one file, then puts the file back."""
    honest = path.read_bytes()
    path.write_bytes(content)
    before = contents(run)
    try:
        with suppress(PfedesError):
            everything(run)
        assert contents(run) == before
    finally:
        path.write_bytes(honest)


@given(data=st.data())
def test_no_mangled_file_is_loaded(finished: Path, data: st.DataObject) -> None:
    paths = sorted(p for p in finished.rglob("*") if p.is_file() and p.stat().st_size)
    path = data.draw(
        st.sampled_from([p for p in paths if p.suffix in {".json", ".jsonl", ".toml"}])
    )
    damaged(finished, path, data.draw(mangled(path.read_bytes())))


@given(data=st.data())
def test_no_forged_manifest_leads_out_of_the_run(finished: Path, data: st.DataObject) -> None:
    """A forger can make the checksum fit: what is in the manifest must do no harm even so."""
    path = finished / "state" / "manifests" / "00002.json"
    raw = json.loads(path.read_text())
    forged = data.draw(altered(raw["manifest"]))
    text = json.dumps(forged, separators=(",", ":"))
    raw |= {"manifest": forged, "sha256": sha256(text.encode()).hexdigest()}
    damaged(finished, path, json.dumps(raw).encode())


@cache
def default_tree() -> dict[str, Any]:
    return tomllib.loads(Config().to_toml())


@given(data=st.data())
@example(data=None)
def test_no_generated_configuration_raises_anything_else(
    tmp_path: Path, data: st.DataObject | None
) -> None:
    path = tmp_path / "config.toml"
    if data is None:
        path.write_text("x = " + "[" * 5000)
    elif data.draw(st.booleans()):
        path.write_bytes(data.draw(mangled(Config().to_toml().encode())))
    else:
        tree = data.draw(altered(default_tree()))
        try:
            path.write_text(tomli_w.dumps(tree), encoding="utf-8", errors="surrogatepass")
        except (AttributeError, TypeError, ValueError):
            return  # TOML cannot say it
    with suppress(PfedesError):
        configure(path)
    assert [p.name for p in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("shape", "end"), [([10**12], 4 * 10**12), ([10**12], 0), ([0, 2**62, 2**62], 0), ([2**64], 0)]
)
def test_a_header_that_announces_a_huge_tensor_allocates_nothing(
    shape: list[int], end: int
) -> None:
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}
    header = json.dumps({"x": tensor}).encode()
    for length in (len(header), 2**62):
        with pytest.raises(PfedesError, match="not a pfedes payload"):
            decode(length.to_bytes(8, "little") + header)


def test_forged_rows_and_lone_surrogates(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    store = RunStore.open(run)
    forged: list[list[Any]] = [[[]], [{"round": 1}], [{**ROW, "accuracy": "high"}]]
    for rows in forged:
        extent = store.append("rounds.jsonl", rows, Extent())
        store.write_manifest(
            store.manifest().model_copy(update={"metrics": {"rounds.jsonl": extent}})
        )
        with pytest.raises(PfedesError, match="damaged"):
            everything(run)
    path = run / "state" / "manifests" / "00002.json"
    path.write_text(path.read_text().replace('"server_digest":"', '"server_digest":"\\ud800'))
    with pytest.raises(PfedesError, match="damaged"):
        RunStore.open(run).manifest()


@pytest.mark.parametrize(
    "name", ["../x", "/absolute", "a/b", "..", ".hidden", "", "x" * 101, "a\n"]
)
def test_impossible_client_names_are_refused(name: str, tmp_path: Path) -> None:
    store = ClientStore(tmp_path / "clients")
    for act in (
        lambda: store.versions("run", name),
        lambda: store.load("run", name, 1),
        lambda: store.discard(name, "client", [1]),
    ):
        with pytest.raises(PfedesError, match="cannot be a name"):
            act()
    assert not (tmp_path / "clients").exists()


def test_a_pickle_is_not_a_state_file(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    marker = tmp_path / "executed"
    path = tmp_path / "run" / "state" / "server" / "00002.safetensors"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")
    with pytest.raises(PfedesError, match="not a pfedes payload"):
        RunStore.open(tmp_path / "run").verify(2)
    assert not marker.exists()
