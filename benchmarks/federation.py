"""What the engine of a real federation costs in a round, beside a simulation of the same people."""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from pfedes import Federation, Run, configure
from pfedes.config.participant import read_participant
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.rehearsal import rehearse

PARTICIPANTS, ROUNDS = 3, 15
WARM = 3  # rounds in which processes still load what they need


def overhead() -> list[dict[str, Any]]:
    """Seconds of a round that no client worked: over FLARE with TLS, and in workers here."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "rehearsal"
        real = rehearse(home, PARTICIPANTS, lambda text: None, rounds=ROUNDS)
        people = [read_participant(home / name / "participant.toml") for name, _, _ in real.people]
        config = configure(
            home / "federation" / "federation.toml",
            participants=people,
            settings={"federation.participants": [], "runtime.workers": PARTICIPANTS},
        )
        simulated = Federation(config, out=Path(place) / "simulated").run()
        # How long participants trained stays with them.
        answers = [a for p in people for a in ParticipantState(Path(p.state)).answers.all()]
        there = [(answer.round, answer.seconds) for answer in answers]
        here = [(row["round"], row["seconds"]) for row in simulated.clients]
        return [
            _row("FLARE, mutual TLS", real.run, there),
            _row("worker processes", simulated, here),
        ]


def _row(name: str, run: Run, trained: list[tuple[int, float]]) -> dict[str, Any]:
    """`trained` has the round and the seconds of every time that somebody trained."""
    longest: dict[int, float] = {}
    for round, seconds in trained:
        longest[round] = max(longest.get(round, 0.0), seconds)
    spare = [row["seconds"] - longest[row["round"]] for row in run.rounds[WARM:]]
    return {
        "fleet": name,
        "participants": PARTICIPANTS,
        "round, s": statistics.median(row["seconds"] for row in run.rounds[WARM:]),
        "of which nobody trains, s": statistics.median(spare),
    }
