"""The participant's files in a site's workspace, which only `pfedes join` writes."""

import json
from dataclasses import dataclass
from pathlib import Path

from pfedes.config import configure
from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant
from pfedes.errors import ConfigError
from pfedes.privacy.config import PrivacyConfig

PARTICIPANT = Path("local") / "participant.json"
TERMS = Path("local") / "federation.toml"


@dataclass(frozen=True)
class SiteFiles:
    """The participant of this site, and the terms that it agreed to."""

    participant: Participant
    terms: FederationConfig
    privacy: PrivacyConfig


def key_of(participant: Participant) -> Path:
    """The path of a key that a participant made itself."""
    if not participant.state:
        raise ConfigError(f"{participant.name}: state = '...' must name a directory for its models")
    return Path(participant.state) / "site.key"


def read_site(workspace: Path) -> SiteFiles:
    tree = json.loads((workspace / PARTICIPANT).read_text(encoding="utf-8"))
    terms = configure(workspace / TERMS)
    return SiteFiles(Participant(**tree), terms.federation, terms.privacy)
