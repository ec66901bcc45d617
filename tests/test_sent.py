"""The list of everything that left: anybody can compare it with a recorded message."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs

from pfedes import cli
from pfedes.core.payload import Payload
from pfedes.deploy.messages import to_shareable
from pfedes.deploy.participant.state import ParticipantState

DEPLOY = Path(__file__).parents[1] / "docs" / "deploy.md"
WITHOUT_PFEDES = "import sys\nsys.modules['pfedes'] = None\n"

MESSAGES = [
    Payload(
        {
            "conv2.weight": torch.linspace(-1, 1, 24).reshape(2, 3, 4),
            "conv1.bias": torch.tensor([1e-30, float("-0.0"), 3.0]),
            "steps": torch.tensor(7),
        },
        {"kind": "reply", "up/loss": 0.1, "up/classes": [2, 1], "client": "Jürgen", "n": 2**70},
    ),
    Payload({}, {"client": "ada", "kind": "failure", "reason": "refused"}),
]


def recorded(message: Payload, path: Path) -> Path:
    """A message as FLARE sends it: its processes register both sets at their start."""
    flare_decomposers.register()
    common_decomposers.register()
    path.write_bytes(fobs.dumps(to_shareable(message)))
    return path


def computed(message: Path) -> str:
    """What the program in the guide says, which finds no pfedes."""
    (program,) = re.findall(
        r"```python\n(# digest_of_message\.py\n.*?)```", DEPLOY.read_text(), re.S
    )
    words = [sys.executable, "-c", WITHOUT_PFEDES + program, str(message)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_a_recorded_message_is_the_one_in_the_list(tmp_path: Path) -> None:
    seat = ParticipantState(tmp_path)
    for message in MESSAGES:
        seat.log_sent("answer", message)
    first, second = (line["sha256"] for line in seat.sent())
    assert computed(recorded(MESSAGES[0], tmp_path / "first")) == first
    assert computed(recorded(MESSAGES[1], tmp_path / "second")) == second

    changed = MESSAGES[0].tensors["conv1.bias"].clone()
    changed[0] = 0
    other = Payload({**MESSAGES[0].tensors, "conv1.bias": changed}, MESSAGES[0].meta)
    assert computed(recorded(other, tmp_path / "other")) != first


def test_status_says_where_the_list_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seat = ParticipantState(tmp_path / "state")
    seat.directory.mkdir()
    seat.log_sent("answer", MESSAGES[0])
    # As a version before wrote it.
    old = seat.sent()[0]
    del old["sha256"]
    seat.sent_file.write_text(seat.sent_file.read_text() + json.dumps(old) + "\n")

    assert cli.execute(["status", str(seat.directory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sent"] == {"file": str(seat.sent_file), "messages": 2, "numbers": 2 * 28}
    assert (found["accepted"], found["accuracy"], found["finished"]) == (0, None, False)
    assert cli.execute(["status", str(seat.directory)]) == 0
    shown = capsys.readouterr().out
    assert "2 messages with 56 numbers" in shown
    assert str(seat.sent_file) in "".join(line.strip() for line in shown.splitlines())
