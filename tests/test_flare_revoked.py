"""A participant is expelled from a running federation, and the others do not notice."""

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from flaring import Ground, eventually
from pfedes import cli
from pfedes.deploy.rehearsal import start_joining, write_participant

ROUNDS = 4


def refusals(ground: Ground) -> int:
    """How often somebody was turned away who came with ben's revoked kit."""
    log = (ground.layout.directory / "server.log").read_text()
    return len(re.findall("a connection with ben's revoked kit is refused", log))


def test_a_revoked_participant_is_out_at_once(ground: Ground, tmp_path: Path) -> None:
    """Two jobs of FLARE, the second for who is admitted again, take the time."""
    federation = str(ground.layout.directory)
    stolen = shutil.copytree(ground.layout.kits / "ben", tmp_path / "stolen")
    ground.begin(train__rounds=ROUNDS, federation__timeout=600)
    with ground.serving() as coordinator:
        done = ground.hold_in_round_2("ben", "cleo", while_waiting_for="ada")
        assert cli.execute(["revoke", "ben", "--federation", federation]) == 0
        eventually(lambda: "ben is gone" in ground.said(), "ben's connection ends")
        eventually(lambda: refusals(ground), "ben's site tries to come back")

        # Nor does a copy of the kit help, with another model on another machine.
        ground.part("ben")
        before = refusals(ground)
        thief = write_participant(tmp_path / "thief", "ben", 1, 3).parent
        process = start_joining(stolen, thief, leave=False)
        try:
            eventually(lambda: refusals(ground) > before, "a copied kit is tried")
        finally:
            process.kill()
            process.communicate()
        ground.release("cleo")
        ground.release("ben")
        run = ground.finished(coordinator)

    assert ground.said().count("ben is connected") == 1
    rows = {(row["client"], row["round"]): row["status"] for row in run.clients}
    assert {rows[name, round] for name in ("ada", "cleo") for round in range(1, ROUNDS + 1)} == {
        "ok"
    }
    after = [status for (name, round), status in rows.items() if name == "ben" and round > done]
    assert after == ["failed"]  # the round in which it was expelled; then nobody asks it any more
    # What it did before stays.
    assert run.manifest.clients["ben"].version == done
    assert {run.manifest.clients[name].version for name in ("ada", "cleo")} == {ROUNDS}

    # Admitted again, it has a new identity and the same place in the run.
    assert cli.execute(["admit", "ben", "--federation", federation]) == 2
    assert cli.execute(["admit", "ben", "--again", "--federation", federation]) == 0
    ground.change(train__rounds=ROUNDS + 1)
    ground.rejoin("ben")
    with ground.serving() as coordinator:
        run = ground.finished(coordinator)
    assert {standing.version for standing in run.manifest.clients.values()} == {ROUNDS + 1}
    assert run.clients[-2]["client"] == "ben"
