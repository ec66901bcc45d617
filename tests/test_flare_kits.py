"""The coordinator's directory: locks, kits and what of a configuration may change."""

import errno
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from pfedes import StoreError, cli, configure
from pfedes.fleet.flare.joining import Joining
from pfedes.fleet.flare.layout import Layout, Presence
from pfedes.fleet.flare.rehearsal import federation_of, write_participant
from pfedes.fleet.flare.serving import Serving, admit, prepare
from pfedes.participant import read_participant
from pfedes.runlock import alone
from test_cli import refused


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("kits") / "federation")
    prepare(layout, federation_of(("ada",), 1, 8002))
    return layout


def test_one_coordinator_at_a_time(layout: Layout) -> None:
    terms, out = str(layout.config), str(layout.directory)
    layout.write_trouble("of a job of the first")
    with layout.served():
        assert "another 'pfedes serve' is at work in" in refused("serve", terms, "--out", out)
        with pytest.raises(StoreError, match="another 'pfedes serve'"):
            Serving(layout, print).run()
        assert cli.execute(["serve", terms, "--out", out, "--kits-only"]) == 0
    assert layout.trouble.exists()
    layout.trouble.unlink()
    layout.refuse_if_served()


def test_two_are_admitted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pfedes.fleet.flare.serving as module

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
        joining.run(leave=True)
    assert not (layout.kits / "ada" / "local" / "participant.json").exists()


def test_who_is_no_participant_is_not_let_in(layout: Layout) -> None:
    serving = Serving(layout, print)
    serving._meet({"ada": "1", "mallory": "2"})
    assert layout.presence() == Presence({"ada": "1"}, {})
    assert layout.presence().waiting() == ["ada"]


def test_a_kit_that_was_handed_over_is_not_made_again(layout: Layout) -> None:
    before = (layout.kits / "ada" / "startup" / "client.key").read_bytes()
    for kit in layout.kits.iterdir():
        shutil.rmtree(kit)
    shutil.rmtree(layout.admin)
    assert prepare(layout, configure(layout.config)) == []
    assert list(layout.kits.iterdir()) == []
    assert (layout.admin / "startup" / "fed_admin.json").exists()
    assert admit(layout, "ada") == layout.kits / "ada"
    assert (layout.kits / "ada" / "startup" / "client.key").read_bytes() == before
    # FLARE counts its stages up to 99; and these hold keys.
    assert not list(layout.provision.rglob("prod_*"))


def test_a_server_without_its_policy_never_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pfedes.fleet.flare.kits as module

    def full(kit: Path, place: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    layout, config = Layout(tmp_path / "federation"), federation_of(("ada",), 1, 8002)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_server_policy", full)
        with pytest.raises(StoreError, match=r"cannot write .*server: No space left"):
            prepare(layout, config)
    assert not layout.server.exists()
    assert prepare(layout, config) == ["ada"]
    policy = json.loads((layout.server / "local" / "resources.json").read_text())
    assert policy["class_list_enforcement_mode"] == "enforce"
    assert str(layout.server / "jobs") in json.dumps(policy)
