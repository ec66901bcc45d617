"""The findings of an audit, as `audit.json` of a run stores them."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pfedes.errors import DamageError
from pfedes.files import read

AUDIT_FILE = "audit.json"
LARGEST_FILE = 2**20  # bytes

Verdict = Literal["leak", "none found", "too few to tell", "not tried"]
Situation = Literal["as it is", "local noise", "secure sum", "default limits"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Finding(_Frozen):
    """One attack in one situation."""

    attack: str
    sees: str
    situation: Situation
    verdict: Verdict
    measure: str = ""  # what `value` is
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    shuffled: float | None = None  # the same attack after learning from shuffled secrets
    chance: float | None = None  # of such a value if the baseline were true, for all attacks
    trials: int = 0
    note: str = ""


class Audit(_Frozen):
    """All findings of an audit, and how they were come by."""

    pfedes: str
    run: str
    round: int = Field(ge=0)  # after which the server's state was sent to shadow clients
    seconds: float = Field(ge=0)
    cohorts: int = Field(ge=0)
    clients: int = Field(ge=0)
    attacked: int = Field(ge=0)
    cohort_size: int = Field(ge=0)
    clip: float | None = None  # of the noise that was tried
    noise: float | None = None  # its standard deviation, over the clip
    epsilon: float | None = None  # of one answer with that noise
    delta: float
    cut: tuple[str, ...] = ()  # what there was no time for
    findings: tuple[Finding, ...]

    @property
    def leaks(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "leak")


def read_audit(directory: Path, run: str) -> Audit | None:
    """The audit beside a run, None if there is none; a DamageError if it is not one of this run."""
    path = directory / AUDIT_FILE
    if not path.exists():
        return None
    if path.stat().st_size > LARGEST_FILE:
        raise DamageError(f"{path} is damaged: larger than {LARGEST_FILE:,} bytes")
    try:
        audit = Audit.model_validate_json(read(path))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise DamageError(f"{path} is damaged: {where}: {problem['msg']}") from None
    if audit.run != run:
        raise DamageError(f"{path} belongs to another run: remove it")
    return audit


def score_words(score: float | None) -> str:
    """A score with two decimals; "-" for None."""
    return "-" if score is None else f"{score:.2f}"


def interval_words(finding: Finding) -> str:
    """The 95 % interval of a finding; "-" if it has none."""
    if finding.low is None or finding.high is None:
        return "-"
    return f"{finding.low:.2f} to {finding.high:.2f}"
