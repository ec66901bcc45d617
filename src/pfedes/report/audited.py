"""What an audit of the run found, as a section of its page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pfedes.errors import PfedesError
from pfedes.formatting import clock, counted, listed
from pfedes.report.grid import Grid, GridCell, text
from pfedes.results.findings import Audit, Finding, interval_words, read_audit, score_words

if TYPE_CHECKING:
    from pfedes.results.run import Run

NOT_SAFE = (
    "A leak is an attack that guesses better than chance, after a correction for the number of "
    'attacks. "None found" says that these attackers failed, not that others would.'
)


@dataclass(frozen=True)
class Audited:
    """The findings, and how they were come by; or why they are not shown."""

    grid: Grid | None
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""


def audited(run: "Run") -> Audited | None:
    """The content of a run's audit.json for the report; None without the file."""
    try:
        audit = read_audit(run.directory, run.manifest.run)
    except PfedesError as error:
        return Audited(None, why_not=str(error))
    if audit is None:
        return None
    columns = ["attack", "what it sees", "uploads", "score", "95 % interval", "chance level"]
    rows = [_row(finding) for finding in audit.findings]
    notes = tuple(
        dict.fromkeys(f"{f.attack}, {f.sees}: {f.note}" for f in audit.findings if f.note)
    )
    grid = Grid("Attacks on what clients send", [*columns, "verdict"], rows)
    return Audited(grid, tuple(_facts(audit)), notes)


def _row(finding: Finding) -> list[GridCell]:
    return [
        text(finding.attack),
        text(f"{finding.sees}; {finding.measure}" if finding.measure else finding.sees),
        text(finding.situation),
        GridCell(score_words(finding.value), finding.value),
        text(interval_words(finding)),
        GridCell(score_words(finding.baseline), finding.baseline),
        text(finding.verdict),
    ]


def _facts(audit: Audit) -> list[tuple[str, str]]:
    made = f"{counted(audit.clients, 'client')} in {counted(audit.cohorts, 'cohort')}"
    found = [
        ("leaks", f"{len(audit.leaks)} of {counted(len(audit.findings), 'attack')}"),
        ("shadow clients", f"{made}, {audit.attacked:,} attacked, the others to learn from"),
        ("sent", f"what the server held after round {audit.round}"),
        ("took", clock(audit.seconds)),
    ]
    if audit.noise is not None and audit.epsilon is not None and audit.clip is not None:
        found.append(
            (
                "local noise",
                f"{audit.noise:g} times the clip of {audit.clip:.3g}: epsilon "
                f"{audit.epsilon:.3g} for one answer, delta {audit.delta:g}",
            )
        )
    if audit.cohorts:
        found.append(("secure sum", f"the mean of {counted(audit.cohort_size, 'client')}"))
    if audit.cut:
        found.append(("left out for lack of time", listed(list(audit.cut), 20)))
    return found
