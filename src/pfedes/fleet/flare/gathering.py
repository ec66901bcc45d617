"""Who is asked into the next job, and when it is time."""

from collections.abc import Collection
from dataclasses import dataclass

from pfedes.config import Config
from pfedes.fleet.flare.fleet import begun, is_finished, untold
from pfedes.fleet.flare.layout import Layout

PATIENCE = 120.0  # seconds for those who were there before, after which the others go on


@dataclass(frozen=True)
class Gathering:
    """The sites for a job, or whom it waits for."""

    sites: list[str]
    missing: list[str]
    needed: int  # how many more must come

    @property
    def is_ready(self) -> bool:
        return not self.needed and bool(self.sites)


def gather(layout: Layout, config: Config, connected: Collection[str], waited: float) -> Gathering:
    """Before the first round the quorum, which is everybody unless said otherwise.

    Later everybody who has taken part, for a while; then whoever is there, if they are a quorum.
    After the last round those who have not heard how it ended.
    """
    run, terms = begun(layout), config.federation
    wanted = set(terms.participants)
    if run is not None and is_finished(run, config):
        wanted, quorum = untold(layout, run), 1
    elif run is None:
        quorum = terms.quorum or len(wanted)
    else:
        known = run.manifest.clients.keys() & wanted
        quorum = terms.quorum or (len(known) if waited < PATIENCE else 1)
    sites = sorted(wanted & set(connected))
    return Gathering(sites, sorted(wanted - set(connected)), max(0, quorum - len(sites)))
