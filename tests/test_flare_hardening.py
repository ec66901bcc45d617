"""What closes FLARE's doors, part by part. `test_flare_doors.py` knocks at all of them."""

import io
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessageType
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.fuel.f3.connection import ConnState
from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.server_runner import ServerRunner
from nvflare.private.scheduler_constants import ShareableHeader

from commands import refused
from pfedes.deploy.app import site_app
from pfedes.deploy.hardening import unix, version
from pfedes.deploy.hardening.cell import GuardedCell, is_neighbour, may_speak_for
from pfedes.deploy.hardening.commands import COMMANDS, FewCommands
from pfedes.deploy.hardening.doors import doors_between
from pfedes.deploy.hardening.job import keep_going
from pfedes.deploy.hardening.latecomers import closing_latecomers
from pfedes.deploy.hardening.launcher import SiteLauncher
from pfedes.deploy.hardening.processors import CONFIG, Deploy, Narrowed, Start, processors
from pfedes.deploy.names import INNER

# Of the form that FLARE makes, but fixed: they are part of the tests' names.
JOB = "5f0c0b52-7a3e-4d0b-9d7e-0f6f3a1c2b11"
OTHER = "c1d2e3f4-0a1b-4c2d-8e3f-4a5b6c7d8e9f"
ADMIN = "_admin_0b9a8c7d-6e5f-4a3b-9c1d-2e3f4a5b6c7d"


CLOSED = """
from pfedes.deploy.hardening.install import harden
harden()
from nvflare.fuel.f3.cellnet.cell import CoreCell
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.fuel.hci.server import builtin
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
print(CoreCell.__name__, builtin.ServerCommandRegister.__name__, socket_conn.MAX_FRAME_SIZE)
print(*(type(one).__name__ for one in ClientRequestProcessors.request_processors))
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.fuel.utils.fobs import fobs, lobs
from nvflare.fuel.utils.fobs.datum import DatumManager
flare_decomposers.register()
print(*(type(fobs._decomposers[name]).__name__
        for name in ("numpy.ndarray", "nvflare.fuel.utils.fobs.datum.Datum")),
      DatumManager.add_datum.__module__, lobs.get_datum_dir.__module__)
"""

JOB_PROCESS = """
import os, runpy, sys
from pfedes.deploy.hardening import job
runpy.run_module = lambda name, **_: print(
    name, len(sys.modules[name.replace("app.server.runner_process", "server.server_runner")]
              .ServerRunner.ABORT_RETURN_CODES))
sys.argv = ["job", "server", str(os.getppid())]
job.main()
"""

SERVER_PROCESS = """
import os, runpy, sys
from nvflare.private.fed.server.fed_server import FederatedServer
from pfedes.deploy import process
runpy.run_module = lambda name, **_: print(
    name, FederatedServer.process_job_failure.__module__,
    FederatedServer._validate_auth_headers.__module__)
sys.argv = ["process", "server", sys.argv[1], "server", str(os.pipe()[0])]
process.main()
"""


def test_what_flare_finds_in_a_process_of_ours() -> None:
    """In one of its own: the names of this one must stay as they are."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED], capture_output=True, text=True, check=True
    )
    names, processors, parts = done.stdout.splitlines()
    assert names == f"GuardedCell FewCommands {2**26}"
    assert processors == "Narrowed Narrowed Deploy Start Narrowed Narrowed"
    attachments = "pfedes.deploy.hardening.attachments"
    assert parts == f"NoArrays NoAttachment {attachments} {attachments}"


def test_what_the_servers_process_looks_at_before_flare_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER_PROCESS, str(tmp_path / "server")],
        env={**os.environ, INNER: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    started = "nvflare.private.fed.app.server.server_train"
    assert done.stdout.split() == [started, "pfedes.deploy.blame", "pfedes.deploy.guard"]


@pytest.mark.parametrize("code", ServerRunner.ABORT_RETURN_CODES)
def test_no_answer_of_one_site_ends_the_job(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that site's failure, as any other return code."""
    monkeypatch.setattr(ServerRunner, "ABORT_RETURN_CODES", ServerRunner.ABORT_RETURN_CODES)
    context = MagicMock()
    context.get_peer_context.return_value = FLContext()
    context.get_peer_context.return_value.set_prop("__run_num__", JOB)
    for ends in (True, False):
        runner = MagicMock(ABORT_RETURN_CODES=ServerRunner.ABORT_RETURN_CODES, job_id=JOB)
        result = make_reply(code)
        ServerRunner._process_submission(runner, MagicMock(), "pfedes", "1", result, context)
        assert runner.system_panic.called == ends
        keep_going()


def test_nor_in_the_process_of_the_servers_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB_PROCESS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "nvflare.private.fed.app.server.runner_process 0\n"


def test_another_version_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda name: "2.10.0")
    line = refused("status", "nowhere")
    assert "need nvflare 2.9.0" in line
    assert "found 2.10.0: pip install nvflare==2.9.0" in line


@pytest.mark.parametrize(
    ("me", "peer", "inner", "is_one"),
    [
        ("server", "ben", False, True),
        ("server", f"ben.{JOB}", False, True),
        ("server", ADMIN, False, True),
        ("server", f"server.{JOB}", False, False),  # the server's job is on this machine
        ("server", f"server.{JOB}", True, True),
        ("server", "ben", True, False),
        ("server", "ben.x.y", False, False),
        ("ada", "server", False, True),
        ("ada", "ben", False, False),
        ("ada", f"ada.{JOB}", True, True),
        ("ada", f"ben.{JOB}", True, False),
        ("ada", f"adam.{JOB}", True, False),
        ("ada", "server", True, False),
        (f"ada.{JOB}", "ada", True, True),
        (f"ada.{JOB}", "ben", True, False),
        (f"ada.{JOB}", "server", False, True),
        (f"server.{JOB}", "server", True, True),
        (f"server.{JOB}", "server", False, False),
        (ADMIN, "server", False, True),
        (ADMIN, "ben", False, False),
    ],
)
def test_who_is_a_neighbour(me: str, peer: str, inner: bool, is_one: bool) -> None:
    assert is_neighbour(me, peer, inner=inner) == is_one


@pytest.mark.parametrize(
    ("me", "peer", "origin", "may"),
    [
        ("server", "ben", "ben", True),
        ("server", "ben", f"ben.{JOB}", True),
        ("server", "ben", "ada", False),
        ("server", "ben", f"ada.{JOB}", False),
        ("server", "ben", f"benn.{JOB}", False),
        ("server", "ben", "server", False),
        ("server", "ben", f"server.{JOB}", False),
        ("server", "ben", ADMIN, False),
        ("server", f"ben.{JOB}", "ben", False),
        ("server", f"server.{JOB}", "ada", False),
        ("ada", "server", "server", True),
        ("ada", "server", f"server.{JOB}", True),
        ("ada", "server", "ben", False),  # the server forwards nothing between participants
        ("ada", "server", "ada", False),
        ("ada", f"ada.{JOB}", "server", False),
        (f"ada.{JOB}", "ada", "server", True),
        (f"ada.{JOB}", "server", f"ben.{JOB}", False),
        (f"server.{JOB}", "server", f"ben.{JOB}", True),
        (f"server.{JOB}", "server", f"server.{OTHER}", False),
        (ADMIN, "server", "ben", False),
        ("server", "ben", None, False),
        ("server", "ben", 7, False),
    ],
)
def test_whom_a_neighbour_may_speak_for(me: str, peer: str, origin: Any, may: bool) -> None:
    assert may_speak_for(me, peer, origin) == may


def cell_of(me: str) -> GuardedCell:
    """A process's cell, as far as it looks at messages; the host is called 'here'."""
    cell = GuardedCell.__new__(GuardedCell)
    cell.my_info = SimpleNamespace(fqcn=me)
    cell.communicator = SimpleNamespace(conn_manager=SimpleNamespace(null_conn=object()))
    cell.identity_resolver = CellIdentityResolver(me, {"server": "here"}, {"server": "here"})
    cell.waiters = {}
    return cell


@pytest.mark.parametrize(
    ("me", "peer", "shown", "topic", "passes"),
    [
        ("server", "ben", "ben", (CellChannel.SERVER_MAIN, "heart_beat"), True),
        ("server", "ada", "ben", (CellChannel.SERVER_MAIN, "heart_beat"), False),
        ("server", "ada", None, (CellChannel.SERVER_MAIN, "heart_beat"), False),
        ("server", f"ada.{JOB}", "ben", (CellChannel.CELLNET, "bye"), False),
        ("server", f"ben.{JOB}", "ben", (CellChannel.CELLNET, "bye"), True),
        ("server", ADMIN, "ben", (CellChannel.HCI, "command"), False),
        ("server", ADMIN, "coordinator@pfedes.local", (CellChannel.HCI, "command"), True),
        (
            "ada",
            "server",
            "ben",
            (CellChannel.CLIENT_MAIN, "admin"),
            False,
        ),  # in the place of the coordinator
        ("ada", "server", "coordinator@pfedes.local", (CellChannel.CLIENT_MAIN, "admin"), False),
        ("ada", "server", "here", (CellChannel.CLIENT_MAIN, "admin"), True),
    ],
)
def test_whose_certificate_goes_with_a_name(
    me: str,
    peer: str,
    shown: str | None,
    topic: tuple[str, str],
    passes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every certificate of the federation gets through the handshake."""
    passed: list[Any] = []
    monkeypatch.setattr(CoreCell, "process_message", lambda self, *given: passed.append(given))
    connection: Any = SimpleNamespace(
        connector=SimpleNamespace(driver=object()),
        get_conn_properties=lambda: {DriverParams.PEER_CN.value: shown},
    )
    headers = {
        MessageHeaderKey.ORIGIN: peer,
        MessageHeaderKey.DESTINATION: me,
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.CHANNEL: topic[0],
        MessageHeaderKey.TOPIC: topic[1],
    }
    cell_of(me).process_message(Endpoint(peer), connection, 1, CellMessage(headers, b""))
    assert bool(passed) == passes


def test_who_may_ask_for_nothing_at_all() -> None:
    for origin, destination in (
        ("ben", "ada"),
        (f"ben.{JOB}", "ada"),
        (f"ben.{JOB}", f"ada.{JOB}"),
        (f"ben.{JOB}", f"server.{OTHER}"),
        (f"ben.{JOB}", f"ben.{OTHER}"),
        ("ben", f"server.{JOB}"),
        (f"server.{JOB}", "ada"),
        (f"server.{JOB}", f"ada.{OTHER}"),
        (ADMIN, "ada"),
        ("ben", ADMIN),
        ("ben.x.y", "server"),
    ):
        assert doors_between(origin, destination) == frozenset()
    assert ("server_command", "submit_update") in doors_between(f"ben.{JOB}", f"server.{JOB}")


def test_few_of_flares_requests_are_left() -> None:
    left = {topic for processor in processors() for topic in processor.get_topics()}
    assert left == {
        "train.deploy", "train.start_job", "train.abort", "train.notify_job_status",
        "scheduler.check_resource", "scheduler.cancel_resource",
    }  # fmt: skip
    flares = {t for p in ClientRequestProcessors.request_processors for t in p.get_topics()}
    assert left <= flares  # in a process that is not hardened


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return data.getvalue()


GENUINE = {CONFIG: json.dumps(site_app()), ".__nvfl_sig.json": "{}"}
OTHER_CLASS = json.dumps(site_app()).replace("pfedes.deploy.participant.executor.Site", "os.system")


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """A site's engine, as far as its processors know it."""
    for name in ("startup", "local"):
        (tmp_path / "site" / name).mkdir(parents=True)
    (tmp_path / "site" / "local" / "privacy.json").write_text("{}")
    return SimpleNamespace(
        args=SimpleNamespace(workspace=str(tmp_path / "site")), get_client_name=lambda: "ada"
    )


def request(topic: str, body: Any = "", **headers: Any) -> Message:
    message = Message(topic, body)
    message.set_headers(headers)
    return message


def is_refused(reply: Message) -> bool:
    return bool(reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR) and (
        reply.body == "refused"
    )


@pytest.mark.parametrize(
    ("job", "body"),
    [
        ("local", archive(**GENUINE)),  # the directory of the site's own policies
        ("startup", archive(**GENUINE)),
        ("../ada", archive(**GENUINE)),
        ("", archive(**GENUINE)),
        (JOB.upper(), archive(**GENUINE)),
        (None, archive(**GENUINE)),
        (JOB, archive(**{**GENUINE, "custom/evil.py": ""})),
        (JOB, archive(**{**GENUINE, "../../local/resources.json": "{}"})),
        (JOB, archive(**{CONFIG: OTHER_CLASS})),
        (JOB, archive(**{CONFIG: "[" * 10**5})),
        (JOB, archive()),
        (JOB, b"nonsense"),
        (JOB, b"x" * (2**20 + 1)),
        (JOB, "text"),
    ],
)
def test_jobs_that_are_not_ours(site: Any, job: Any, body: Any) -> None:
    place = Path(site.args.workspace)
    before = sorted(place.rglob("*"))
    assert is_refused(Deploy().process(request(TrainingTopic.DEPLOY, body, job_id=job), site))
    assert sorted(place.rglob("*")) == before


def test_a_job_is_written_from_our_template(site: Any) -> None:
    meta = {"job_id": JOB, "byoc": True, "launcher_spec": {"x": 1}, "custom_props": {"x": 1}}
    deploy = request(TrainingTopic.DEPLOY, archive(**GENUINE), job_id=JOB, job_meta=meta)
    assert not is_refused(Deploy().process(deploy, site))
    run = Path(site.args.workspace) / JOB
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert files == {"app_ada/config/config_fed_client.json", "fl_app.txt", "meta.json"}
    assert json.loads((run / "app_ada" / CONFIG).read_text()) == site_app()
    kept = json.loads((run / "meta.json").read_text())
    assert set(kept) == {"job_id", "name", "resource_spec", "job_clients"}
    assert is_refused(Deploy().process(deploy, site))  # it may be at work


def test_only_plain_headers_are_passed_on(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MagicMock()
    narrowed = Narrowed(inner, RequestHeader.JOB_ID)
    narrowed.process(request("t", {"gpus": 9}, job_id=JOB, admin_command="x"), site)
    (passed, _), _ = inner.process.call_args
    assert (passed.topic, passed.body, passed.headers) == ("t", {}, {"job_id": JOB})
    assert is_refused(narrowed.process(request("t", job_id="../x"), site))
    assert is_refused(Narrowed(inner, "token").process(request("t", token=["x"]), site))
    base = MagicMock()
    monkeypatch.setattr(Start.__mro__[1], "process", lambda self, req, ctx: base(req))
    meta = {"job_id": JOB, "byoc": True}
    token = {ShareableHeader.RESOURCE_RESERVE_TOKEN: "1"}
    Start().process(request("t", {"x": 1}, job_id=JOB, job_meta=meta, **token), site)
    (started,), _ = base.call_args
    assert "byoc" not in started.get_header(RequestHeader.JOB_META)
    assert started.body == {}
    assert is_refused(Start().process(request("t", job_id=JOB), site))


def test_few_of_flares_commands_are_left() -> None:
    register, conn = FewCommands(app_ctx=None), MagicMock()
    for command in ("cat ada /etc/passwd", "shutdown all", "stop_net", "", "sh.ls", "x.submit"):
        register.process_command(conn, command)
        conn.append_error.assert_called_once_with("refused")
        conn.reset_mock()
    assert {"check_status", "submit_job", "get_job_meta"} <= COMMANDS


@pytest.mark.parametrize("name", ["short", "x" * 120])
def test_one_user_meets_at_a_socket(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the path is longer than addresses of sockets can be."""
    place = tmp_path / name
    place.mkdir(mode=0o700)
    monkeypatch.setenv(INNER, str(place))
    address, other = unix.UnixDriver.get_urls("unix", {})
    assert address == other
    listener = unix.UnixDriver()
    met = threading.Event()

    def notice(connection: Any) -> None:
        if connection.state is ConnState.CONNECTED:
            met.set()

    listener.register_conn_monitor(SimpleNamespace(state_change=notice))
    threading.Thread(target=listener.listen, args=(connector(listener, address),)).start()
    path = place / unix.SOCKET
    while not path.exists() or listener._server is None:
        threading.Event().wait(0.01)
    try:
        with socket.socket(socket.AF_UNIX) as ours, unix._reachable(path) as reachable:
            ours.connect(reachable)
            assert met.wait(10)
        assert path.stat().st_mode & 0o077 == 0
        job = unix.UnixDriver()  # that ends, and is not the last
        job.connector = connector(job, address)
        job.shutdown()
        assert path.exists()
        met.clear()
        if hasattr(socket, "SO_PEERCRED"):
            monkeypatch.setattr(os, "geteuid", lambda: 12345)  # of the listener: not the other's
            with socket.socket(socket.AF_UNIX) as ours, unix._reachable(path) as reachable:
                ours.connect(reachable)
                ours.settimeout(10)
                assert ours.recv(1) == b""  # closed at once
            assert not met.is_set()
            with pytest.raises(PermissionError, match="belongs to another user"):
                unix.UnixDriver().connect(connector(listener, address))
    finally:
        listener.shutdown()
    assert not path.exists()


def connector(driver: Any, address: str) -> ConnectorInfo:
    from nvflare.fuel.f3.drivers.net_utils import parse_url

    return ConnectorInfo("x", driver, parse_url(address), Mode.PASSIVE, 0, 0, False,
                         threading.Event())  # fmt: skip


@pytest.mark.parametrize("stopped", [True, False])
def test_a_connection_that_comes_while_all_are_closed_is_closed(stopped: bool) -> None:
    """FLARE would read it forever, and wait for that before it ends."""
    here, there = socket.socketpair()
    driver = unix.UnixDriver()
    driver.conn_monitor = MagicMock()
    event = threading.Event()
    connector = ConnectorInfo("c", driver, {}, Mode.ACTIVE, 0, 0, True, event)
    driver.connector = connector
    if stopped:
        event.set()
        driver.close_all()  # knows of none
    connection = SocketConnection(here, connector)
    closing_latecomers(BaseDriver.add_connection)(driver, connection)
    assert driver.connections
    assert connection.closing is stopped
    connection.close()
    there.close()


def test_a_job_is_told_its_parent() -> None:
    given = SimpleNamespace(get_prop=lambda key: {})
    words = shlex.split(SiteLauncher().get_command({}, given))
    assert words[-3:] == ["pfedes.deploy.hardening.job", "client", str(os.getpid())]


def test_a_job_whose_parent_died_while_it_started_ends() -> None:
    """It would try to reach the parent forever, without a pause."""
    with subprocess.Popen(["true"]) as parent:
        parent.wait()
    words = "from pfedes.fleet.process import end_without_parent; import threading"
    words += f"; end_without_parent({parent.pid}); threading.Event().wait(60)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
