"""The time that an audit may take, and what was left out for lack of it."""

import time


class Clock:
    """Runs down from so many minutes. It decides how much is tried, never what is found."""

    def __init__(self, minutes: float) -> None:
        self._began = time.monotonic()
        self.seconds = 60 * minutes
        self.cut: list[str] = []
        """The attacks that were left out, in words."""

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def as_many(self, wanted: int, seconds_each: float, share: float, what: str) -> int:
        """How many fit into a share of all the time; notes it if these are fewer than wanted."""
        fit = max(1, int(share * self.seconds / max(seconds_each, 1e-6)))
        if fit < wanted:
            self.cut.append(f"{fit:,} of {wanted:,} {what}")
        return min(fit, wanted)
