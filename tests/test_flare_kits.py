"""The coordinator's directory: locks, kits and what of a configuration may change."""

import errno
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from nvflare.apis.signal import Signal
from nvflare.private.fed.app.deployer.base_client_deployer import BaseClientDeployer

from commands import refused
from pfedes import ConfigError, StoreError, cli, configure
from pfedes.config.participant import read_participant
from pfedes.deploy.coordinator.controller import Coordinator
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.serve import Serving, admit, prepare
from pfedes.deploy.coordinator.terms import in_force
from pfedes.deploy.engine import Engine
from pfedes.deploy.farewell import farewell
from pfedes.deploy.kit import KEY
from pfedes.deploy.participant.join import Joining
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.participant.waiting import WAITING, Waiting
from pfedes.deploy.rehearsal import (
    Rehearsal,
    _check_enough,
    _see_off,
    federation_of,
    start_joining,
    write_participant,
)
from pfedes.errors import DiskError, FailedRunError
from pfedes.store.lock import alone


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("kits") / "federation")
    prepare(layout, federation_of(("ada",), 1, 8002))
    return layout


def test_one_coordinator_at_a_time(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    terms, out = str(layout.config), str(layout.directory)
    layout.write_trouble("of a job of the first")
    with layout.served():
        assert "another 'pfedes serve' is at work in" in refused("serve", terms, "--out", out)
        second = Serving(layout, print)
        monkeypatch.setattr(second.engine, "keep_alive", MagicMock(side_effect=AssertionError))
        with pytest.raises(StoreError, match="another 'pfedes serve'"):
            second.run()
        assert cli.execute(["serve", terms, "--out", out, "--kits-only"]) == 0
    assert layout.trouble.exists()
    layout.trouble.unlink()
    layout.refuse_if_served()


def test_two_are_admitted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pfedes.deploy.coordinator.serve as module

    layout = Layout(tmp_path)
    layout.config.write_text(federation_of(("ada",), 1, 8002).to_toml())
    monkeypatch.setattr(module, "provide", lambda *arguments: time.sleep(0.3))
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(admit, layout), ("ben", "cleo")))
    assert set(configure(layout.config).federation.participants) == {"ada", "ben", "cleo"}


def test_one_joins_at_a_time(layout: Layout, tmp_path: Path) -> None:
    person = read_participant(write_participant(tmp_path / "ada", "ada", 0, 2))
    joining = Joining(layout.kits / "ada", person, print)
    joining.seat.directory.mkdir()
    with (
        alone(joining.seat.directory / "join.lock", ""),
        pytest.raises(StoreError, match="another 'pfedes join' is at work in"),
    ):
        joining.run()
    assert not joining.waiting.workspace.exists()


@pytest.fixture
def ended(terminal: None, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A terminal that is closed as soon as FLARE would start; called when FLARE is ended."""
    monkeypatch.setattr(Engine, "keep_alive", lambda self: signal.raise_signal(signal.SIGHUP))
    stop = MagicMock()
    monkeypatch.setattr(Engine, "stop", stop)
    return stop


def test_a_closed_terminal_ends_join(
    layout: Layout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: MagicMock,
) -> None:
    kit, file, state = str(layout.kits / "ada"), str(tmp_path / "ada.toml"), tmp_path / "state"
    state.mkdir()
    told = Waiting(name="ada", directory=state, limits={}, ends={})
    monkeypatch.setenv(WAITING, told.model_dump_json())
    assert cli.execute(["join", kit, file]) == 130
    assert capsys.readouterr().err == f"pfedes: stopped; 'pfedes join {kit} {file}' continues\n"
    assert "stopped by SIGHUP; 'pfedes join' continues" in (state / "join.log").read_text()
    ended.assert_called_once()


def test_a_closed_terminal_ends_serve(
    layout: Layout, capsys: pytest.CaptureFixture[str], ended: MagicMock
) -> None:
    file, out = str(layout.config), str(layout.directory)
    assert cli.execute(["serve", file, "--out", out]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"pfedes: stopped; 'pfedes serve {file} --out {out}' continues"
    assert (
        "stopped by SIGHUP; 'pfedes serve' continues"
        in (layout.directory / "serve.log").read_text()
    )
    ended.assert_called_once()


def test_only_participants_are_admitted(layout: Layout) -> None:
    serving = Serving(layout, print)
    serving._meet({"ada": "1", "mallory": "2"})
    assert layout.presence() == Presence({"ada": "1"}, {})
    assert layout.presence().waiting() == ["ada"]


@pytest.mark.parametrize(
    ("finished_at", "untold", "text"),
    [
        (0.0, set(), "ada is gone"),
        (1.0, {"ada"}, "ada is gone"),
        (1.0, set(), "ada has left with the final result"),
    ],
)
def test_who_leaves_at_the_end_is_not_called_gone(
    finished_at: float, untold: set[str], text: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    serving = Serving(layout, said.append)
    monkeypatch.setattr("pfedes.deploy.coordinator.serve.begun", lambda layout: MagicMock())
    monkeypatch.setattr("pfedes.deploy.coordinator.serve.untold", lambda layout, run: untold)
    serving._meet({"ada": "1"})
    serving._finished_at = finished_at
    serving._meet({})
    assert said == ["ada is connected", text]


def test_a_kit_that_was_handed_over_is_not_made_again(layout: Layout) -> None:
    before = (layout.kits / "ada" / KEY).read_bytes()
    elsewhere = layout.provision.rename(layout.directory / "elsewhere")
    assert prepare(layout, configure(layout.config)) == []  # nobody needs the authority
    for kit in layout.kits.iterdir():
        shutil.rmtree(kit)
    with pytest.raises(StoreError, match="no longer holds the authority"):
        prepare(layout, configure(layout.config))
    elsewhere.rename(layout.provision)
    shutil.rmtree(layout.admin)
    assert prepare(layout, configure(layout.config)) == []
    assert list(layout.kits.iterdir()) == []
    assert (layout.admin / "startup" / "fed_admin.json").exists()
    assert admit(layout, "ada") == layout.kits / "ada"
    assert (layout.kits / "ada" / KEY).read_bytes() == before
    # FLARE counts its stages up to 99; and these hold keys.
    assert not list(layout.provision.rglob("prod_*"))


def test_kits_and_servers_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pfedes.deploy.coordinator.provisioning as module

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    layout, config = Layout(tmp_path / "federation"), federation_of(("ada",), 1, 8002)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_kit", full)
        with pytest.raises(StoreError, match=r"cannot write .*ada: No space left"):
            prepare(layout, config)
    assert not (layout.kits / "ada").exists()
    assert prepare(layout, config) == ["ada"]
    assert not [path for path in layout.directory.rglob(".*") if path.is_dir()]


@pytest.fixture
def unmade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A federation of ada and benn, in which FLARE makes nothing."""
    monkeypatch.setattr("pfedes.deploy.coordinator.provisioning._make", lambda *arguments: None)
    layout = Layout(tmp_path / "federation")
    layout.provision.mkdir(parents=True)
    layout.config.write_text(federation_of(("ada",), 2, 8002).to_toml())
    prepare(layout, federation_of(("ada", "benn"), 2, 8002))
    return layout


def people(layout: Layout) -> tuple[str, ...]:
    return configure(layout.config).federation.participants


def test_a_misspelt_name_does_not_stay(unmade: Layout) -> None:
    admit(unmade, "dan")
    assert people(unmade) == ("ada", "benn", "dan")
    prepare(unmade, federation_of(("ada", "ben"), 2, 8002))
    assert people(unmade) == ("ada", "ben", "dan")
    unmade.write_presence(Presence({"ada": "1"}, {}))
    prepare(unmade, federation_of(("ben",), 2, 8002))
    assert people(unmade) == ("ben", "ada", "dan")


def test_names_that_flare_refuses(unmade: Layout) -> None:
    before = unmade.config.read_text()
    for name in ("north.example", "server", "localhost"):
        with pytest.raises(ConfigError, match="cannot be a participant's name"):
            prepare(unmade, federation_of(("ada", name), 2, 8002))
        with pytest.raises(ConfigError, match="cannot be a participant's name"):
            admit(unmade, name)
    host = configure(unmade.config, settings={"federation.host": "fl_example"})
    with pytest.raises(ConfigError, match=r"federation\.host = 'fl_example' must be a name"):
        prepare(unmade, host)
    assert unmade.config.read_text() == before


def test_what_cannot_change_in_a_run(unmade: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    import pfedes.deploy.coordinator.terms as module

    start = configure(unmade.config, method="fedkd")

    class Begun:
        config = start.settled()

        class manifest:  # noqa: N801 (an attribute of a run)
            clients: ClassVar = {"ada": None}

    unmade.config.write_text(start.to_toml())
    monkeypatch.setattr(module, "begun", lambda layout: Begun)
    other = configure(unmade.config, settings={"train.lr": 0.5, "method.energy_end": 0.5})
    with pytest.raises(ConfigError) as refusal:
        prepare(unmade, other)
    assert "train.lr = 0.5 (it began with 0.01)" in str(refusal.value)
    assert "method.energy_end = 0.5 (it began with" in str(refusal.value)
    assert "batch_size" not in str(refusal.value)
    changes = {"train.rounds": 9, "federation.timeout": 5, "federation.participants": ["ben"]}
    more = configure(unmade.config, settings=changes)
    prepare(unmade, more)
    assert people(unmade) == ("ben", "ada")
    # A schedule that was settled by the first number of rounds stays, for participants too.
    sent = in_force(unmade, more)
    assert sent.method == Begun.config.method
    assert (sent.train.rounds, sent.federation.timeout) == (9, 5)
    monkeypatch.setattr(Begun, "config", sent)
    assert in_force(unmade, more) == sent
    with pytest.raises(ConfigError, match=r"method\.name = 'pfedes' \(it began with 'fedkd'\)"):
        in_force(unmade, configure(unmade.config, method="pfedes"))

    # Edited while it is served, it ends the job with the same line.
    unmade.config.write_text(other.to_toml())
    coordinator = Coordinator(str(unmade.directory))
    monkeypatch.setattr(coordinator, "system_panic", lambda *arguments: None)
    coordinator.control_flow(Signal(), MagicMock())
    assert "train.lr = 0.5 (it began with 0.01)" in unmade.trouble.read_text()


def test_a_server_does_not_move(layout: Layout) -> None:
    moved = configure(layout.config, settings={"federation.port": 8003})
    with pytest.raises(StoreError, match=r"say localhost:8003, .* made for localhost:8002"):
        prepare(layout, moved)
    assert configure(layout.config).federation.port == 8002


def test_places_that_cannot_be_written(layout: Layout, tmp_path: Path) -> None:
    """A file stands where a directory should be."""
    file = tmp_path / "file"
    file.touch()
    terms = str(layout.config)
    for words in (
        ["serve", terms, "--out", str(file / "federation")],
        ["rehearse", "--out", str(file / "rehearsal")],
    ):
        assert "cannot write" in refused(*words)
    home = write_participant(tmp_path / "ada", "ada", 0, 2)
    home.write_text(home.read_text().replace('"state"', f'"{file}/state"'))
    assert "cannot write" in refused("request", str(home))
    person = read_participant(home)
    with pytest.raises(DiskError, match="cannot write"):
        Joining(layout.kits / "ada", person, print).run()
    with pytest.raises(DiskError, match="cannot write"):
        Engine("client", tmp_path, "ada", file / "site.log").keep_alive()


def test_a_job_that_cannot_be_written_ends_the_command(
    unmade: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pfedes.deploy.coordinator.serve as module

    serving = Serving(unmade, print)
    monkeypatch.setattr(serving, "_connect", MagicMock())
    monkeypatch.setattr(module, "connected", lambda session: {"ada": "1", "benn": "2"})
    unmade.job.touch()
    with pytest.raises(DiskError, match=r"cannot write .*job"):
        serving._look()


def test_what_flare_raises_is_tried_again_and_what_our_code_raises_is_not(
    unmade: Layout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import pfedes.deploy.coordinator.serve as module

    serving = Serving(unmade, print)
    monkeypatch.setattr(serving, "_connect", MagicMock(side_effect=RuntimeError("busy")))
    for _ in range(module.MANY + 5):
        assert not serving._look()
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [line for line in warned if "RuntimeError: busy" in line] == [
        "the server does not answer: RuntimeError: busy; asking again every 0.5 s"
    ]
    monkeypatch.setattr(serving, "_connect", MagicMock())
    monkeypatch.setattr(module, "connected", lambda session: {"ada": "1"})
    monkeypatch.setattr(serving, "_meet", MagicMock(side_effect=KeyError("a slip of ours")))
    monkeypatch.setattr(serving.engine, "keep_alive", lambda: False)
    monkeypatch.setattr(module, "write_server", lambda *_: None)
    with pytest.raises(FailedRunError, match=r"^serving failed: KeyError: 'a slip of ours' \("):
        serving.run()


def test_participants_of_a_rehearsal_end_with_it(layout: Layout, tmp_path: Path) -> None:
    home = write_participant(tmp_path / "ada", "ada", 0, 2).parent
    process = start_joining(layout.kits / "ada", home, leave=False)
    try:
        assert process.stdin is not None
        process.stdin.close()  # as the kernel does for whoever is gone
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
    assert (home / "join.txt").read_text() == ""


def test_a_participant_that_does_not_leave_a_rehearsal_as_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pfedes.cli.rehearse as module

    process, stays = MagicMock(), subprocess.TimeoutExpired("join", 60)
    process.wait.side_effect = [0, 2, -signal.SIGKILL, stays]
    names = ("ada", "ben", "cleo", "dan")
    ends = [_see_off(name, process, tmp_path) for name in names]
    see = f": see {tmp_path / 'join.txt'}"
    told = ["ben ended with code 2", "cleo was ended by SIGKILL", "dan has not left yet"]
    assert ends == ["", *(text + see for text in told)]

    # The others' results are shown; the command does not call that a success, nor wrong input.
    people = [(name, "mlp", ParticipantState(tmp_path / name)) for name in names]
    done = Rehearsal(MagicMock(directory=tmp_path), people, ends[2:3])
    monkeypatch.setattr(module, "rehearse_federation", lambda *_, **__: done)
    assert cli.execute(["rehearse"]) == 1
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:5]] == list(names)
    assert said.err == f"pfedes: {ends[2]}\n"


def test_a_site_that_ends_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the server need not find out; what fails at such a moment is nobody's concern."""
    site = MagicMock(token="")
    monkeypatch.setattr(BaseClientDeployer, "create_fed_client", lambda deployer, args: site)
    say = farewell()
    say()  # before there is a site
    assert BaseClientDeployer.create_fed_client(MagicMock(), None) is site
    say()  # before the server knows it
    site.logout_client.assert_not_called()
    site.token = "known"
    say()
    site.logout_client.assert_called_once()
    site.logout_client.side_effect = ConnectionError
    say()


def test_a_rehearsal_with_too_few_ends(
    unmade: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody starts the others again: it would wait forever."""
    import pfedes.deploy.rehearsal as module

    stays, died = MagicMock(), MagicMock(returncode=2)
    stays.poll.return_value, died.poll.return_value = None, 2
    homes = {name: tmp_path / name for name in ("ada", "ben")}

    def check(*ended: str) -> None:
        joined = {name: died if name in ended else stays for name in homes}
        serving = Serving(unmade, print, lambda: _check_enough(unmade, joined, homes))
        monkeypatch.setattr(serving, "engine", MagicMock())
        monkeypatch.setattr(serving, "_look", MagicMock(side_effect=[False, True]))
        serving.run()

    (unmade.server / "startup").mkdir(parents=True)
    unmade.config.write_text(federation_of(("ada", "ben"), 1, 8002).to_toml())
    monkeypatch.setattr("pfedes.deploy.coordinator.serve.LOOK", 0)
    monkeypatch.setattr("pfedes.deploy.coordinator.serve.open_run", MagicMock())
    check()
    said = f"ben ended with code 2: see {homes['ben'] / 'join.txt'}"
    with pytest.raises(FailedRunError) as refusal:
        check("ben")
    assert str(refusal.value) == f"too few participants before the first round: {said}"

    # Later the other one continues alone, if that is enough for a round.
    run = MagicMock()
    run.manifest.round, run.config.fewest_uploads = 1, 1
    monkeypatch.setattr(module, "begun", lambda layout: run)
    monkeypatch.setattr(module, "is_finished", lambda *about: False)
    check("ben")
    with pytest.raises(FailedRunError, match="too few participants after round 1: ada"):
        check("ada", "ben")
    monkeypatch.setattr(module, "is_finished", lambda *about: True)
    check("ada", "ben")


def test_a_rehearsal_of_no_rounds_leaves_nothing_behind() -> None:
    for rounds in ("-1", "0"):
        assert f"train.rounds = {rounds}" in refused("rehearse", "--rounds", rounds)
