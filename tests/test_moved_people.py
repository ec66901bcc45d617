"""Participants' data and the code that loads it may go: models stay of use."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import command
from pages import Page
from pfedes import (
    DamageError,
    Federation,
    Participant,
    PfedesError,
    StoreError,
    configure,
    open_run,
)
from pfedes.core.payload import Payload, encode, read_payload
from pfedes.report.page import render
from tiny import CLASSES

LOADING = "from tiny import ada_images as images, ben_rows as rows\n"
HELD = "Samples of each client, by class"


def trained(place: Path) -> Path:
    """A run of two whose loading code lies in a file beside it."""
    loading = place / "loading.py"
    loading.write_text(LOADING)
    people = [
        Participant(name="ada", model="tiny:normalised", data=f"{loading}:images", methods=("fd",)),
        Participant(name="ben", model="tiny:tabular", data=f"{loading}:rows", methods=("fd",)),
    ]
    settings = {
        "federation.classes": list(CLASSES),
        "federation.channels": 1,
        "train.rounds": 1,
        "train.epochs": 1,
        "runtime.fleet": "serial",
        "runtime.report": False,
    }
    config = configure(method="fd", participants=people, settings=settings)
    Federation(config, out=place / "run").run()
    return place / "run"


def test_predict_export_and_report_need_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path)
    before = open_run(run)
    before.stored = None  # as in a run that kept nothing: measured on the data
    measured = {name: before.personal(name).facts for name in ("ada", "ben")}
    page = Page(render(open_run(run)))
    (tmp_path / "loading.py").unlink()
    for name in [name for name in sys.modules if name.startswith("pfedes_own_")]:
        monkeypatch.delitem(sys.modules, name)  # as in a process that begins later

    assert {name: open_run(run).personal(name).facts for name in measured} == measured
    after = Page(render(open_run(run)))
    assert "Not shown" not in after.text
    assert after.table(HELD).rows == page.table(HELD).rows
    np.save("rows.npy", np.zeros((2, 16), np.float32))
    told = command("predict", "run", "--client", "ben", "rows.npy", "--json")
    assert (told.returncode, len(json.loads(told.stdout))) == (0, 2), told.stderr
    done = command("export", "run", "--client", "ada", "--out", "exported")
    assert done.returncode == 0, done.stderr
    with pytest.raises(PfedesError, match="cannot be imported"):
        open_run(run).client("ada")  # who trains needs the data


def test_without_inputs_nobody_computes_with_them(tmp_path: Path) -> None:
    stored = open_run(trained(tmp_path)).stored
    assert stored is not None
    assert stored.population.pictures(2) is None
    client = stored.population.client("ada")
    assert (len(client.train), client.shape) == (36, (1, 8, 8))
    assert client.train.inputs.is_meta


@pytest.mark.parametrize("damage", ["labels", "shape", "other"])
def test_what_was_kept_of_them_is_checked(damage: str, tmp_path: Path) -> None:
    run = open_run(trained(tmp_path))
    path = run.store.kept_path
    kept = read_payload(path)
    about = json.loads(str(kept.meta["participants"]))
    tensors = dict(kept.tensors)
    if damage == "labels":
        tensors["test.ben"] = tensors["test.ben"] + 100
    elif damage == "shape":
        about["ada"]["shape"] = [8, -8, 1]
    else:
        about["ada"]["digest"] = "another"
    path.write_bytes(encode(Payload(tensors, {"participants": json.dumps(about)})))
    kind, said = (StoreError, "other data") if damage == "other" else (DamageError, "is damaged")
    with pytest.raises(kind, match=said):
        run.personal("ada")
