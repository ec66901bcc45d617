"""Where clients train: in this process, in worker processes, or on a cluster."""

import os
from typing import TYPE_CHECKING

from pfedes.errors import ConfigError

if TYPE_CHECKING:
    from pfedes.core.protocol import Fleet
    from pfedes.population.simulation import Simulation
    from pfedes.store.client_store import ClientStore


def make_fleet(simulation: "Simulation", store: "ClientStore") -> "Fleet":
    """The fleet that `[runtime]` asks for; raises ConfigError where clients are elsewhere."""
    # Imported where used: processes that only start others import this package, and no torch.
    from pfedes.fleet.client_host import host_of
    from pfedes.fleet.serial import SerialFleet
    from pfedes.fleet.workers import WorkerFleet
    from pfedes.methods import of_this_program

    config, runtime = simulation.config, simulation.config.runtime
    if not simulation.population.is_here:
        raise ConfigError(
            "federation.participants train on their own machines: start this federation "
            "with 'pfedes serve'"
        )
    if runtime.fleet != "serial" and (what := of_this_program(config.method)):
        raise ConfigError(
            f"{what} is defined in this program, which other processes cannot import: put it into "
            "a module and name it 'module:name', or set runtime.fleet = 'serial'"
        )
    host = host_of(simulation, store)
    if runtime.fleet == "serial":
        return SerialFleet(host, runtime.threads)
    if runtime.fleet == "cluster":
        # Imported where used: it is an extra.
        from pfedes.fleet.dask.fleet import ClusterFleet

        return ClusterFleet(host, config)
    workers = os.cpu_count() or 1 if runtime.workers == "auto" else runtime.workers
    workers = min(workers, len(simulation.population.names))
    return WorkerFleet(host, config.to_toml(), workers)
