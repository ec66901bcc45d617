"""An audit: all attacks on a run, within a given time.

An audit finds leaks. It never shows that there are none: another attacker may do better.
"""

from collections.abc import Iterator

import numpy as np

from pfedes.audit.attempts import AttackResult, judged
from pfedes.audit.attributes import ARCHITECTURE, CLASSES, attempts_on
from pfedes.audit.clock import Clock
from pfedes.audit.identification import attempts_on_samples
from pfedes.audit.membership import attempts_on_members
from pfedes.audit.pixels import REQUESTS, attempts_on_pixels, situations_of
from pfedes.audit.releases import RELEASES, attempt_on_noise
from pfedes.audit.shadows import Shadow, Shadows
from pfedes.audit.sights import Noise
from pfedes.data.dataset import Progress, silent
from pfedes.fleet.allow_list import reply_spec
from pfedes.fleet.serial import with_threads
from pfedes.privacy.accounting import epsilon_of
from pfedes.results.findings import Audit
from pfedes.results.run import Run
from pfedes.version import __version__

NOISE = 0.05
"""Standard deviation of the noise that is tried, over the clip."""

DELTA = 1e-5
MOST_COHORTS = 90
SHARE_OF_SHADOWS = 0.5
"""The share of the time after which no further cohort begins."""

SHARE_OF_THEFT, SHARE_OF_NOISE = 0.15, 0.1
SECONDS_OF_RELEASE = 3e-4  # with a client and without; measured on a busy machine


def audit(
    run: Run,
    *,
    minutes: float = 5,
    cohorts: int = MOST_COHORTS,
    progress: Progress = silent,
) -> Audit:
    """Attacks what the clients of a run's configuration send, for about so many minutes.

    A StoreError if the clients are not on this machine, or the run is not what it was.
    """
    with with_threads(run.config.runtime.threads):
        return _Auditor(run, Clock(minutes), progress).audit(cohorts)


class _Auditor:
    def __init__(self, run: Run, clock: Clock, progress: Progress) -> None:
        self.run = run
        self.clock = clock
        self.progress = progress
        self.shadows = Shadows(run)
        self._each = 0.0  # seconds of a shadow client

    def audit(self, cohorts: int) -> Audit:
        made = list(self._made(cohorts)) if self.shadows.can_be_made else []
        noise = self._noise(made)
        found = judged(list(self._attempts(made, noise)))
        return Audit(
            pfedes=__version__,
            run=self.run.manifest.run,
            round=self.run.manifest.round,
            seconds=self.clock.spent,
            cohorts=len({shadow.cohort for shadow in made}),
            clients=len(made),
            attacked=sum(shadow.cohort % 3 == 2 for shadow in made),
            cohort_size=self.shadows.cohort_size if made else 0,
            clip=noise.clip if made else None,
            noise=noise.noise if made else None,
            epsilon=epsilon_of(1, noise.noise, DELTA) if made else None,
            delta=DELTA,
            cut=tuple(self.clock.cut),
            findings=tuple(found),
        )

    def _made(self, wanted: int) -> Iterator[Shadow]:
        """Cohorts of shadow clients, as many as there is time for."""
        number = 0
        until = SHARE_OF_SHADOWS * self.clock.seconds
        while number < wanted:
            began = self.clock.spent
            yield from self.shadows.cohort(number)
            number += 1
            each = self.clock.spent - began
            self._each = each / self.shadows.cohort_size
            fit = number + int(max(0, until - self.clock.spent) / max(each, 1e-6))
            self.progress("cohorts of shadow clients", number, min(fit, wanted))
            if fit == number:
                break
        if number < wanted:
            self.clock.cut.append(f"{number:,} of {wanted:,} cohorts of shadow clients")

    def _noise(self, made: list[Shadow]) -> Noise:
        """Little noise, on changes that are clipped to the usual one."""
        clip = float(np.median([shadow.size for shadow in made])) if made else 0.0
        return Noise(clip or 1.0, NOISE, self.run.config.seed)

    def _attempts(self, made: list[Shadow], noise: Noise) -> Iterator[AttackResult]:
        seed = self.run.config.seed
        simulation = self.shadows.base
        if made:
            card = self.shadows.card(simulation, simulation.population.names[0])
            ctx = simulation.context(self.shadows.round)
            listed = reply_spec(simulation.method, card, ctx, over_network=True).meta
            situations = self.shadows.situations
            yield from attempts_on(made, listed, noise, situations, seed, self.progress)
        else:
            why = "participants bring data of their own: there are no other partitions of it"
            for attack in (CLASSES, ARCHITECTURE):
                yield AttackResult(attack, "", "as it is", "", note=why)
        yield from attempts_on_members(self.shadows, made, noise, seed, self.progress)
        yield from attempts_on_samples(self.shadows, NOISE, self.clock, self.progress)
        yield from attempts_on_pixels(self.shadows, NOISE, self._requests(), self.progress)
        yield attempt_on_noise(seed, self._releases())

    def _requests(self) -> int:
        """Crafted downloads that there is time for, each about as long as a shadow client."""
        if not self._each:
            return REQUESTS
        what = "crafted downloads in each situation"
        return self.clock.as_many(
            REQUESTS, len(situations_of(self.shadows)) * self._each, SHARE_OF_THEFT, what
        )

    def _releases(self) -> int:
        """The noise is only sampled as often as it should be where there is some time."""
        what = "releases of noise, with a client and without"
        return self.clock.as_many(RELEASES, SECONDS_OF_RELEASE, SHARE_OF_NOISE, what)
