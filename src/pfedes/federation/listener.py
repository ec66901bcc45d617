"""Listeners: objects that are told what happens in a run."""

from collections.abc import Sequence

from pfedes.federation.admission import Verdict
from pfedes.federation.estimate import Plan
from pfedes.privacy.budget import Prospect
from pfedes.results.run import Run
from pfedes.results.summary import Row


class Listener:
    """Is told what happens in a run. Every method does nothing; override those you need."""

    def working(self, label: str, done: int, total: int) -> None:
        """A long step, such as decoding data or evaluating all clients, has advanced.

        Args:
            label: What is done.
            done: How many steps are done.
            total: How many there are.
        """

    def planned(self, plan: Plan) -> None:
        """A large run is about to begin.

        Args:
            plan: The time, memory and disk space that it is expected to take.
        """

    def priced(self, prospect: Prospect) -> None:
        """A run with `[privacy]` is about to begin.

        Args:
            prospect: What it is expected to cost its clients.
        """

    def started(self, run: Run) -> None:
        """The run directory exists: it was created, or the run is resumed.

        Args:
            run: The run as it is now.
        """

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        """A round begins.

        Args:
            round: Its number, from 1.
            clients: Names of the selected clients.
        """

    def client_done(self, verdict: Verdict) -> None:
        """A client's answer was accepted, rejected or failed.

        Args:
            verdict: The task, the answer and the decision on it.
        """

    def round_done(self, row: Row) -> None:
        """A round is committed.

        Args:
            row: Its row of `rounds.jsonl`.
        """

    def finished(self, run: Run) -> None:
        """All rounds are done, and summary and report are written.

        Args:
            run: The finished run.
        """

    def ended(self) -> None:
        """Nothing more will come: the run is finished, has failed or was stopped."""
