"""What a site's directory says of its participant: written by `pfedes join`, by nobody else."""

import json
from dataclasses import dataclass
from pathlib import Path

from pfedes.config import configure
from pfedes.data.own import FederationConfig
from pfedes.participant import Participant

PARTICIPANT = Path("local") / "participant.json"
TERMS = Path("local") / "federation.toml"


@dataclass(frozen=True)
class SiteFiles:
    """Who sits here, and the terms that they agreed to."""

    participant: Participant
    terms: FederationConfig


def read_site(kit: Path) -> SiteFiles:
    tree = json.loads((kit / PARTICIPANT).read_text(encoding="utf-8"))
    return SiteFiles(Participant(**tree), configure(kit / TERMS).federation)
