"""Knocks at every door that the installed FLARE has, in a federation at work.

From a participant's certificate, from the server's own machine, and from outside.
"""

import ast
import importlib
import json
import os
import socket
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

import nvflare
from nvflare.apis.fl_constant import AdminCommandNames, ReservedTopic, ServerCommandNames
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_ERROR_TOPIC,
)
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from flaring import Ground, eventually, processes
from pfedes import Run, configure
from pfedes.deploy.hardening import unix
from pfedes.deploy.hardening.cell import REFUSED
from pfedes.deploy.hardening.doors import ProcessKind, doors_between, kind_of
from pfedes.deploy.hardening.processors import is_job
from pfedes.deploy.names import INNER, SERVER

HERE = Path(__file__).parent
KNOWN = HERE / "fixtures" / "flare_doors.txt"
REGISTERING = {"register_request_cb", "register_blob_cb", "register_aux_message_handler"}
NOBODY = 65534


def registered() -> Iterator[tuple[str, str, str]]:
    """Where FLARE's source registers a handler: file, channel and topic, as they are written."""
    root = Path(nvflare.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in REGISTERING:
                continue
            given = [ast.unparse(value) for value in node.args]
            named = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if node.func.attr == "register_aux_message_handler":
                given.insert(0, "CellChannel.AUX_COMMUNICATION")
            channel = named.get("channel", given[0] if given else "")
            topic = named.get("topic", given[1] if len(given) > 1 else "")
            yield file.relative_to(root).as_posix(), channel, topic


@cache
def doors() -> list[tuple[str, str]]:
    """Every channel and topic among them that has a name, and all of those behind a wildcard."""
    from nvflare.fuel.f3.cellnet.defs import CellChannel

    found, wild = set(), {CellChannel.AUX_COMMUNICATION}
    for file, channel, topic in registered():
        if not file.startswith(("private/", "fuel/")):
            continue  # of applications that a federation does not run: known, see above
        module = importlib.import_module("nvflare." + file.removesuffix(".py").replace("/", "."))
        scope = {**vars(module), "CellChannel": CellChannel}
        try:
            pair = eval(channel, scope), eval(topic, scope)
        except (AttributeError, NameError):
            continue  # passed on from a caller, which is listed itself
        if pair[1] == "*":
            wild.add(pair[0])
        else:
            found.add(pair)
    topics = {t for p in ClientRequestProcessors.request_processors for t in p.get_topics()}
    for names in (AdminCommandNames, ReservedTopic, ServerCommandNames):
        topics |= {v for k, v in vars(names).items() if k.isupper() and isinstance(v, str)}
    topics |= {"admin", "command"}
    return sorted(found | {(channel, topic) for channel in wild for topic in topics})


def test_flare_registers_only_the_known_requests() -> None:
    """Another FLARE may register more: then somebody has to look at them first."""
    assert [" ".join(door) for door in registered()] == KNOWN.read_text().splitlines()


# What the server may do to its own federation, such as ending a job, it does not do here.
HARMFUL = {"bye", "quit", AdminCommandNames.ABORT, ReservedTopic.END_RUN}


def knock(place: Path, name: str, url: str, who: dict[str, str], *targets: str) -> None:
    """Tries every door of every target: exactly those are open that the sender needs.

    Farewells stay out, which would end the connection.
    """
    tried = [door for door in doors() if door[1] not in ("bye", "quit")]
    plan = {"name": name, "url": url, "credentials": who, "targets": targets, "doors": tried}
    file = place / f"{uuid.uuid4()}.json"
    file.write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(HERE / "knocking.py"), str(file)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert_open(name, tried, json.loads(done.stdout.splitlines()[-1]))


def begin_inside(plans: Path, role: str, *targets: str) -> None:
    """Has a genuine process of the coordinator's do the same, by its own cell."""
    tried = [door for door in doors() if door[1] not in HARMFUL]
    plan = {"targets": targets, "doors": tried, "commands": commands() if role == "server" else []}
    part = plans / "part"
    part.write_text(json.dumps(plan))
    part.rename(plans / f"{role}.plan.json")


def check_inside(plans: Path, role: str, name: str) -> None:
    """What it heard, in its own name."""
    answer = plans / f"{role}.json"
    eventually(answer.exists, f"what the {role} heard")
    sender, said = json.loads(answer.read_text())
    assert sender == name
    plan = json.loads((plans / f"{role}.plan.json").read_text())
    assert_open(name, [tuple(door) for door in plan["doors"]], said)
    sites = [target for target in said if kind_of(target) is ProcessKind.SITE]
    for target in sites if plan["commands"] else []:
        heard = {topic: said[target][topic] for topic in plan["commands"]}
        assert not {t for t, text in heard.items() if "invalid" not in text and text != REFUSED}


def commands() -> list[str]:
    """All that the server of an unguarded FLARE may have a site do."""
    return sorted({t for p in ClientRequestProcessors.request_processors for t in p.get_topics()})


def assert_open(name: str, tried: list[tuple[str, str]], said: dict[str, dict[str, str]]) -> None:
    """Of the doors that were tried, exactly those are open that the sender needs."""
    for target, texts in said.items():
        answers = {door: texts[" ".join(door)] for door in tried}
        heard = {door for door, text in answers.items() if not text.endswith("refused")}
        # Nobody replies to a part of a stream that is refused, and to others FLARE need not.
        parts = {door for door in heard if door[0] == STREAM_CHANNEL}
        assert heard - parts == doors_between(name, target) & answers.keys(), (name, target)
        taken = {
            topic for _, topic in parts if not answers[STREAM_CHANNEL, topic].startswith("time")
        }
        related = doors_between(name, target) or doors_between(target, name)
        assert taken <= ({STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC} if related else set())


def credentials(kit: Path) -> dict[str, str]:
    """The certificates of a kit, as FLARE's driver wants them."""
    files = {"ca_cert": "authority.crt", "client_cert": "participant.crt",
             "client_key": "participant.key"}  # fmt: skip
    return {key: str(kit / name) for key, name in files.items()}


def listening(pid: int) -> list[str]:
    """The addresses at which a process accepts connections over TCP."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    open_files = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return [w[1] for w in lines if w[3] == "0A" and f"socket:[{w[9]}]" in open_files]


def inner_socket(pid: int) -> Path:
    """Where a FLARE process meets its jobs."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    (place,) = [w.partition("=")[2] for w in words if w.startswith(f"{INNER}=")]
    return Path(place) / unix.SOCKET


LEAK = """

# A participant whose own code gets round the allow-list of pfedes, and adds a tensor.
from pfedes.fleet import client_host
from pfedes.methods.pfedes import PFedES

_round = PFedES.client_round


def _leaking(self, client, download, ctx):
    upload = _round(self, client, download, ctx)
    upload.tensors["samples"] = client.train.inputs[:1].float()
    return upload


PFedES.client_round = _leaking
client_host.check_reply = lambda population, method, client, reply, ctx: None
"""


@dataclass(frozen=True)
class Job:
    """A job in whose only round ada is held."""

    ground: Ground
    coordinator: "subprocess.Popen[bytes]"
    plans: Path

    def finished(self) -> Run:
        """The run, after ada was let go."""
        if (self.ground.home / "ada" / "hold").exists():
            self.ground.release("ada")
        return self.ground.finished(self.coordinator)


@pytest.fixture(scope="module")
def job(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Everybody is at work, and ben's own code adds a tensor to what it sends."""
    plans = tmp_path_factory.mktemp("plans")
    ground.begin(train__rounds=1, federation__timeout=900)
    own = ground.home / "ben" / "own.py"
    code = own.read_text()
    own.write_text(code + LEAK)
    ground.hold("ada")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(HERE / "inside"), prepend=os.pathsep)
            patch.setenv("KNOCKING", str(plans))
            with ground.serving() as coordinator:
                ground.await_held("ada")
                yield Job(ground, coordinator, plans)
    finally:
        own.write_text(code)


def test_forbidden_requests_get_no_answer_while_a_job_runs(job: Job) -> None:
    """With everybody at work, who must finish all the same.

    A job of FLARE takes the time.
    """
    ground, plans = job.ground, job.plans
    site = ground.seat("ada").directory / "site"
    (engine,) = processes("pfedes.deploy.process", "client", str(site))
    (worker,) = processes("pfedes.deploy.hardening.job", "client", str(site))
    (server,) = processes("pfedes.deploy.process", str(ground.layout.server))
    words = Path(f"/proc/{worker}/cmdline").read_text().split("\0")
    (running,) = {word for word in words if is_job(word)}
    everybody = [SERVER, f"{SERVER}.{running}", "ada", f"ada.{running}"]
    port = configure(ground.layout.config).federation.port

    for role in ("job", "server"):
        begin_inside(plans, role, "ada", f"ada.{running}")
    # Another participant.
    ben, url = credentials(ground.layout.kits / "ben"), f"tcp://localhost:{port}"
    knock(plans, f"ben.{uuid.uuid4()}", url, ben, *everybody)
    # The server's job, or whoever got into the coordinator's account.
    inner = inner_socket(server)
    knock(plans, f"{SERVER}.{uuid.uuid4()}", f"unix://here{inner}", {}, *everybody)

    # The server and its job themselves.
    check_inside(plans, "job", f"{SERVER}.{running}")
    check_inside(plans, "server", SERVER)

    # Nobody else gets as far as that: not without a certificate, nor as another user.
    outside = ssl.create_default_context()
    outside.check_hostname, outside.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("localhost", port), 20) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
        outside.wrap_socket(raw) as connected,
    ):
        assert connected.recv(1) != b""
    assert [listening(pid) for pid in (engine, worker)] == [[], []]
    for place in (inner, inner_socket(engine)):
        assert place.parent.stat().st_mode & 0o077 == 0
        if os.geteuid() == 0:
            code = (
                f"import os, socket; os.setgid({NOBODY}); os.setuid({NOBODY}); "
                f"socket.socket(socket.AF_UNIX).connect({str(place)!r})"
            )
            tried = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False
            )
            assert "PermissionError" in tried.stderr
    finished = {(row["client"], row["status"]) for row in job.finished().clients}
    assert finished >= {("ada", "ok"), ("cleo", "ok")}


def test_a_tensor_that_nobody_agreed_to_is_stopped_by_the_sites_filter(job: Job) -> None:
    run = job.finished()
    status = {(row["client"], row["status"]) for row in run.clients}
    assert status == {("ada", "ok"), ("ben", "failed"), ("cleo", "ok")}
    assert {row["floats_up"] for row in run.clients if row["client"] == "ben"} == {0}
    assert run.manifest.clients["ben"].version == 0
    said = (job.ground.seat("ben").directory / "site.log").read_text()
    assert "samples is not on the list of what may leave" in said
