"""Who is not let in, and what does not leave: each with genuine participants as control."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from flaring import NAMES, Ground, eventually
from pfedes import configure
from pfedes.config.participant import read_participant
from pfedes.deploy.coordinator.job import write_job
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.serve import prepare
from pfedes.deploy.coordinator.session import connected
from pfedes.deploy.engine import Engine
from pfedes.deploy.flare_config import write_server, write_site
from pfedes.deploy.kit import CERTIFICATE, KEY, read_kit
from pfedes.deploy.names import ADMIN
from pfedes.deploy.rehearsal import federation_of

# FLARE's sessions leave sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SETTLING = 8.0  # seconds in which an impostor would have been let in; a site takes two


@dataclass(frozen=True)
class Server:
    """FLARE's server, with nobody who submits jobs but the tests."""

    session: Session
    log: Path
    genuine: Mapping[str, str]  # everybody's token

    def jobs(self) -> set[str]:
        return {job["job_id"] for job in self.session.list_jobs()}

    def is_over(self, job: str) -> bool:
        return (self.session.get_job_status(job) or "").startswith("FINISHED")


@pytest.fixture(scope="module")
def server(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    ground.begin()
    log = tmp_path_factory.mktemp("server") / "server.log"
    write_server(ground.layout.server, configure(ground.layout.config))
    with ExitStack() as running:
        start(running, Engine("server", ground.layout.server, "server", log))

        def tried() -> Session | None:
            try:
                return session_with(ground.layout.admin)
            except Exception:  # whatever FLARE raises while nobody is there
                return None

        session: Session = eventually(tried, "a session with the server", 90)
        running.callback(session.close)
        everybody = set(NAMES)
        eventually(lambda: connected(session).keys() == everybody, "the genuine participants", 90)
        yield Server(session, log, connected(session))


def start(running: ExitStack, engine: Engine) -> None:
    running.callback(engine.stop)
    engine.keep_alive()


def session_with(kit: Path) -> Session:
    return new_secure_session(ADMIN, str(kit), timeout=5)


def client(ground: Ground, place: Path, kit: Path, name: str, whose: str) -> Engine:
    """A site that runs with a kit, whoever it says it is."""
    participant = read_participant(ground.home / whose / "participant.toml")
    read = read_kit(kit)
    assert read.key is not None
    write_site(place, read, read.key, participant)
    return Engine("client", place, name, place / "site.log")


def test_who_is_not_let_in(ground: Ground, server: Server, tmp_path: Path) -> None:
    """A server of FLARE and three impostors, who are given some seconds, take the time."""
    layout = ground.layout
    other = Layout(tmp_path / "other")
    prepare(other, federation_of(("ben",), 1, configure(layout.config).federation.port))
    foreign, nothing, borrowed = (tmp_path / name for name in ("foreign", "nothing", "borrowed"))
    with ExitStack() as running:
        start(running, client(ground, foreign, other.kits / "ben", "ben", "ben"))
        without = client(ground, nothing, layout.kits / "ben", "ben", "ben")
        for file in ("client.crt", "client.key"):
            (nothing / "startup" / file).unlink()
        start(running, without)
        start(running, client(ground, borrowed, layout.kits / "cleo", "dan", "cleo"))

        # Nobody else submits jobs: not with another authority's keys, nor with a participant's.
        jobs = server.jobs()
        with pytest.raises(NoConnection):
            session_with(other.admin)
        disguised = tmp_path / "disguised"
        shutil.copytree(layout.admin, disguised)
        for file, ours in (("client.crt", CERTIFICATE), ("client.key", KEY)):
            shutil.copy(layout.kits / "ben" / ours, disguised / "startup" / file)
        with pytest.raises(FLCommunicationError, match="refused"):
            session_with(disguised).submit_job(str(write_job(layout, ["ada"])))
        assert server.jobs() == jobs

        # Those who have a certificate have asked, and were not answered.
        for place in (foreign, borrowed):

            def refused_once(log: Path = place / "site.log") -> bool:
                return "re-challenge" in log.read_text()

            eventually(refused_once, "an impostor's try", 90)
        deadline = time.monotonic() + SETTLING
        while time.monotonic() < deadline:
            # By name and by token: nobody took anybody's place.
            assert connected(server.session) == server.genuine
            time.sleep(0.5)


def test_a_job_that_brings_code(ground: Ground, server: Server, tmp_path: Path) -> None:
    """A job of FLARE takes the time."""
    marker = tmp_path / "evil-was-here"
    job = tmp_path / "job"
    shutil.copytree(write_job(ground.layout, ["ada"]), job)
    (job / "site" / "custom").mkdir()
    (job / "site" / "custom" / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
        "from pfedes.deploy.participant.executor import Site as Evil\n"
    )
    config = job / "site" / "config" / "config_fed_client.json"
    tree = json.loads(config.read_text())
    tree["executors"][0]["executor"]["path"] = "evil.Evil"
    config.write_text(json.dumps(tree))
    before = len(ground.seat("ada").sent())
    refused = server.session.submit_job(str(job))
    eventually(lambda: server.is_over(refused), "the end of a job with code", 90)
    assert not marker.exists()
    assert len(ground.seat("ada").sent()) == before
    said = (ground.seat("ada").directory / "site.log").read_text() + server.log.read_text()
    assert "a job with other files" in said


def test_a_method_that_was_not_agreed_to(ground: Ground, server: Server) -> None:
    """ada alone agreed to it: the others say no, and nothing of theirs leaves.

    A job of FLARE takes the time.
    """
    layout = ground.layout
    before = {name: len(ground.seat(name).sent()) for name in NAMES}
    ground.change(method__name="fd", aggregation__max_norm=0)
    layout.write_presence(Presence(server.genuine, server.genuine))
    server.session.submit_job(str(write_job(layout, NAMES)))
    eventually(layout.trouble.exists, "the end of the coordinator's job")
    assert "1 take part, but 3 must (ben: refused; cleo: refused" in layout.trouble.read_text()
    assert not layout.run.exists()
    for name in NAMES:
        (line,) = ground.seat(name).sent()[before[name] :]
        assert line["floats"] == 0
        assert ("up/card" in line["values"]) == (name == "ada")
    log = (ground.seat("ben").directory / "join.log").read_text()
    assert "no consent to method 'fd': participant.toml names pfedes" in log
