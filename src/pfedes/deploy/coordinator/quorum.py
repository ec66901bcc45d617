"""Which participants the next job asks, and when it begins."""

from collections.abc import Collection
from dataclasses import dataclass

from pfedes.config import Config
from pfedes.deploy.coordinator.fleet import begun, is_finished, untold
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.strikes import Strikes

PATIENCE = 120.0  # seconds to wait for earlier participants, after which the others continue


@dataclass(frozen=True)
class Gathering:
    """The sites of a job, or the participants that it waits for."""

    sites: list[str]
    missing: list[str]
    needed: int  # how many more must come
    pardoned: list[str]  # sites whose pause ends, or there would be too few

    @property
    def is_ready(self) -> bool:
        return not self.needed and bool(self.sites)


def gather(layout: Layout, config: Config, connected: Collection[str], waited: float) -> Gathering:
    """Chooses the sites of the next job.

    Before the first round it waits for the quorum, which is all participants by default. Later it
    waits for a while for all that have taken part, then takes those that are connected if they are
    a quorum. After the last round it takes those that have not received the result. Paused
    participants are left out, unless too few would be left.
    """
    run, terms, there = begun(layout), config.federation, set(connected)
    wanted, quorum = set(terms.participants), terms.quorum
    fewest = config.fewest_uploads  # with fewer a round can only fail
    awaited = wanted  # it waits for all of these if no quorum is set
    paused: set[str] = set()
    if run is not None and is_finished(run, config):
        wanted, quorum, fewest = untold(layout, run), 1, 1
    elif run is None:
        paused = Strikes(layout.strikes).paused(1) & wanted & there
        if quorum and len((wanted & there) - paused) >= max(quorum, fewest):
            wanted -= paused
    elif run is not None:
        paused = Strikes(layout.strikes).paused(run.manifest.round + 1) & wanted & there
        if len((wanted & there) - paused) >= max(1, quorum, fewest):
            wanted -= paused
        awaited = run.manifest.clients.keys() & wanted if waited < PATIENCE else set()
    sites = sorted(wanted & there)
    needed = quorum - len(sites) if quorum else len(awaited - there)
    needed = max(0, needed, fewest - len(sites))
    return Gathering(sites, sorted(wanted - there), needed, sorted(paused & set(sites)))
