"""The commit of one round, as it is on disk.

A manifest may come from anywhere. Names in it become paths, so they have a form from which no path
can lead out of the run directory.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pfedes.core.names import Name
from pfedes.core.scores import Scores
from pfedes.errors import DamageError, StoreError, WireError
from pfedes.files import parse_json, read
from pfedes.section import Section, unknown_fields

FORMAT = 1
MARK = ', "manifest": '  # ends the head of the file
Round = Annotated[int, Field(ge=0, lt=10**9)]
MetricsFile = Literal["rounds.jsonl", "clients.jsonl", "privacy.jsonl"]


class Standing(Section):
    """A client's standing: its accepted version and its current scores."""

    version: Round = 0
    digest: str = ""
    scores: Scores | None  # the headline's; None where they stay with a participant
    local: Scores | None  # right after local training


class Extent(Section):
    """How much of a growing file is committed, and the checksum of that much."""

    length: int = Field(0, ge=0)
    crc32: int = 0


class Manifest(Section):
    """The commit of one round. Never changed once written."""

    run: Name
    round: Round
    status: Literal["ok", "failed"]
    initial_accuracy: float | None
    best_round: Round | None  # by validation
    best_validation: float | None
    roster: str = Field(pattern=r"^roster-[0-9a-f]{16}\.json$")  # files, relative to state/
    server: str = Field(pattern=r"^server/[0-9]{5,9}\.safetensors$")
    server_digest: str
    metrics: dict[MetricsFile, Extent]
    clients: dict[Name, Standing] = Field(min_length=1)

    @property
    def scores(self) -> dict[str, Scores]:
        """The headline's scores by client, of those who tell them."""
        return scores_of(self.clients)

    def ends(self, rounds: int, patience: int) -> bool:
        """Whether all rounds are done, or patience has run out."""
        waited = self.round - self.best_round if self.best_round is not None else 0
        return self.round >= rounds or 0 < patience <= waited

    def to_bytes(self) -> bytes:
        text = self.model_dump_json()
        head = {"format": FORMAT, "sha256": sha256(text.encode()).hexdigest()}
        return f"{json.dumps(head)[:-1]}{MARK}{text}}}\n".encode()


def scores_of(clients: Mapping[str, Standing]) -> dict[str, Scores]:
    """The headline's scores by client, of those who tell them."""
    known = ((name, standing.scores) for name, standing in clients.items())
    return {name: scores for name, scores in known if scores is not None}


def read_manifest(path: Path) -> Manifest:
    """The manifest, whole and as it was written, or the line that says what is wrong."""
    data = read(path)
    raw: Any = parse_json(path, data)
    try:
        if raw["format"] > FORMAT:
            raise StoreError(f"{path} was written by a newer pfedes (format {raw['format']})")
        # Of the text as it was written: a later version may know more fields, or other defaults.
        intact = raw["sha256"] == sha256(_text_of(data)).hexdigest()
        if not intact:
            raise DamageError(f"{path} is damaged: contents do not match their checksum")
        manifest = Manifest.model_validate(raw["manifest"])
    except KeyError as error:
        raise DamageError(f"{path} is damaged: {error} is missing") from None
    except ValidationError as error:
        if newer := unknown_fields(error):
            raise StoreError(
                f"{path} was written by a newer pfedes: this one does not know {newer}; update it"
            ) from None
        reason = str(error).splitlines()[0]
        raise DamageError(f"{path} is damaged: {reason}") from None
    except (TypeError, ValueError, WireError) as error:
        reason = str(error).splitlines()[0]
        raise DamageError(f"{path} is damaged: {reason}") from None
    if path.stem != f"{manifest.round:05d}":
        raise DamageError(f"{path} is the manifest of round {manifest.round}")
    return manifest


def _text_of(data: bytes) -> bytes:
    """The manifest's own text, between the head and the closing brace."""
    return data.partition(MARK.encode())[2].rstrip(b"\n")[:-1]
