"""What a run tells whoever watches it."""

from collections.abc import Sequence

from pfedes.federation.admission import Verdict
from pfedes.federation.estimate import Plan
from pfedes.results.run import Run
from pfedes.results.summary import Row


class Listener:
    """Hears what happens in a run. Every method does nothing; override what matters."""

    def working(self, label: str, done: int, total: int) -> None:
        """A long step (decoding data, evaluating all clients) got further."""

    def planned(self, plan: Plan) -> None:
        """A big run is about to begin; this is what it will take."""

    def started(self, run: Run) -> None:
        """The run is on disk: new, or resumed."""

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        """These clients were selected."""

    def client_done(self, verdict: Verdict) -> None:
        """A client's answer came in and was examined."""

    def round_done(self, row: Row) -> None:
        """The round is committed."""
