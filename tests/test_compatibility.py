"""What later versions keep of this one: see docs/compatibility.md."""

import json
from pathlib import Path

import pytest

from pfedes.config.participant import read_participant
from pfedes.population.remote import RemotePopulation
from surface import Surface, surface

FIXTURES = Path(__file__).parent / "fixtures"


def missing(before: Surface, now: Surface) -> list[str]:
    """What was there and is no more."""
    return [
        f"{place}: {name}" if name else place
        for place, names in before.items()
        for name in (["", *names] if place not in now else sorted({*names} - {*now[place]}))
    ]


@pytest.mark.parametrize("version", ["0.2.0"])
def test_names_of_earlier_versions_are_there(version: str) -> None:
    """Python names and arguments, commands and options, keys, methods, exit codes."""
    before = json.loads((FIXTURES / f"surface-{version}.json").read_text())
    assert len(before) > 100
    assert missing(before, surface()) == []


def test_what_is_gone_is_named() -> None:
    before = {"pfedes run": ["--out", "--seed"], "pfedes.Gone": ["x"]}
    now = {"pfedes run": ["--out", "--new"], "pfedes.New": []}
    assert missing(before, now) == ["pfedes run: --seed", "pfedes.Gone", "pfedes.Gone: x"]


@pytest.mark.parametrize("version", ["0.2.0"])
def test_kits_of_earlier_versions_are_read(version: str) -> None:
    pytest.importorskip("cryptography", reason="needs the extra 'flare'")
    from pfedes.deploy.kit import read_kit

    kit = read_kit(FIXTURES / f"kit-{version}")
    assert kit.name == "north"
    assert kit.terms.federation.host == "fl.example.org"
    assert kit.terms.method.name == "pfedes"
    recorded = (FIXTURES / f"kit-{version}-digest.txt").read_text().strip()
    assert RemotePopulation(kit.terms.federation).digest == recorded


def test_participant_files_of_earlier_versions_are_read() -> None:
    participant = read_participant(FIXTURES / "participant-0.2.0.toml")
    assert participant.limits.epochs == 10
    assert participant.methods == ("pfedes", "standalone")
