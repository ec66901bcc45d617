"""A participant that keeps the others waiting is asked less and less often.

A participant is given a strike when it does not answer in time, when it leaves a job that is under
way and comes back, for that job must end to let it in, and when it says that its part of a job
failed, for FLARE then ends the job for everybody. The first strike costs nothing; every
further one a pause that doubles: 1, 3, 7, ... rounds. Ten rounds answered in a row lift one strike.
A pause never stops a federation: where too few are left for a round, it is lifted.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from pydantic import TypeAdapter

from pfedes.files import write_atomically
from pfedes.section import Section, read_as
from pfedes.store.lock import in_turn

log = logging.getLogger(__name__)

FORGIVEN_AFTER = 10  # rounds answered in a row that lift a strike
LONGEST_PAUSE = 63  # rounds


class Strike(Section):
    """The strikes and the pause of one participant."""

    count: int = 0
    why: str = ""  # the last one
    given: int = 0  # in which round
    until: int = 0  # the round from which on it is asked again
    answered: int = 0  # rounds in a row since
    session: str = ""  # that it left last

    def pauses(self, round: int) -> bool:
        """Whether it is not asked in a round; rounds before the strike are another run's."""
        return self.given <= round < self.until

    def struck(self, why: str, round: int, session: str = "") -> "Strike":
        """The account with one more strike, given in a round."""
        pause = min(2**self.count - 1, LONGEST_PAUSE)
        return Strike(
            count=self.count + 1,
            why=why,
            given=round,
            until=round + 1 + pause if pause else 0,
            session=session or self.session,
        )

    def after_answer(self) -> "Strike":
        """When a round was answered in time."""
        if self.answered + 1 < FORGIVEN_AFTER:
            return self.model_copy(update={"answered": self.answered + 1})
        return self.model_copy(update={"count": self.count - 1, "answered": 0})


Accounts = dict[str, Strike]
_FORM = TypeAdapter(Accounts)


class Strikes:
    """The accounts of all participants, in a file: they outlive the coordinator's processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def accounts(self) -> Accounts:
        return read_as(_FORM, self._path, {})

    def paused(self, round: int) -> set[str]:
        """Names of the participants that are not asked in a round."""
        return {name for name, strike in self.accounts().items() if strike.pauses(round)}

    def give(self, name: str, why: str, round: int, session: str = "") -> None:
        """A strike for what happened in a round; leaving one session counts once."""

        def changed(accounts: Accounts) -> None:
            before = accounts.get(name, Strike())
            if session and session == before.session:
                return
            now = accounts[name] = before.struck(why, round, session)
            then = f"it is not asked before round {now.until}" if now.until else "no pause yet"
            log.warning("%s has strike %d: %s; %s", name, now.count, why, then)

        self._change(changed)

    def answered(self, names: Collection[str]) -> None:
        """Counts a round that participants answered in time."""

        def changed(accounts: Accounts) -> None:
            for name in accounts.keys() & set(names):
                before, now = accounts[name], accounts[name].after_answer()
                accounts[name] = now
                if now.count < before.count:
                    log.info("%s answered %d rounds in a row: a strike is lifted, %d left",
                             name, FORGIVEN_AFTER, now.count)  # fmt: skip
                if not now.count:
                    del accounts[name]

        if self._path.exists():
            self._change(changed)

    def pardon(self, names: Iterable[str], why: str) -> None:
        """Ends pauses without which there would be no round."""

        def changed(accounts: Accounts) -> None:
            for name in sorted(accounts.keys() & set(names)):
                accounts[name] = accounts[name].model_copy(update={"until": 0})
                log.warning("%s is asked in spite of its pause: %s", name, why)

        self._change(changed)

    def forget(self, name: str) -> None:
        """Closes a participant's account."""

        def changed(accounts: Accounts) -> None:
            accounts.pop(name, None)

        if self._path.exists():
            self._change(changed)

    def _change(self, changed: Callable[[Accounts], None]) -> None:
        """The job and the process that submits jobs may both have something to write."""
        with in_turn(self._path.with_suffix(".lock")):
            before, accounts = self.accounts(), self.accounts()
            changed(accounts)
            if accounts != before:
                tree = {name: strike.model_dump() for name, strike in accounts.items()}
                write_atomically(self._path, json.dumps(tree).encode())
