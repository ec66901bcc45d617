"""Running federations from a script or a notebook, as `pfedes run` and `pfedes resume` do."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pfedes.api.spectator import spectators
from pfedes.config import Config, configure
from pfedes.config.participant import Participant
from pfedes.federation.listener import Listener
from pfedes.federation.loop import Federation, Selector, uniform
from pfedes.methods import of_this_program
from pfedes.methods.base import Method
from pfedes.results.run import Run

log = logging.getLogger(__name__)


def run(
    config: Path | str | Config | None = None,
    *,
    method: Method[Any] | type[Method[Any]] | str | None = None,
    data: str | None = None,
    data_dir: Path | str | None = None,
    clients: int | None = None,
    participation: float | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    cluster: str | None = None,
    tls: Path | str | None = None,
    participants: Sequence[Path | str | Participant] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    select: Selector = uniform,
    listener: Listener | None = None,
    track: str | Sequence[str] = (),
    quiet: bool = False,
) -> Run:
    """Trains a federation and shows its progress.

    The options are those of `pfedes run`. If a notebook or script defines the method or extractor,
    clients train in this process, one after another. After an interruption,
    `pfedes.resume(directory)` continues the run.

    Args:
        config: A TOML file, or a configuration; None for the defaults.
        method: A method as an object, as a class, or by its name.
        data: Name of the data set.
        data_dir: Directory of the data set.
        clients: Number of clients.
        participation: Share of clients per round, 0 to 1.
        rounds: Number of rounds.
        seed: Random seed of the run.
        workers: Number of worker processes.
        device: Device on which clients train.
        precision: Precision of local training.
        cluster: Address of a Dask scheduler.
        tls: Directory with the certificates of the cluster.
        participants: Participants, or paths of their files, instead of a partition.
        settings: Values by `section.key`; `method.extractor` may be a function.
        out: The run directory; a new one below runs/ if None.
        select: Chooses the clients of a round. It is called with their names, the number to choose,
            and a seeded random generator.
        listener: Is told about the progress of the run.
        track: Names of trackers: "tensorboard", "wandb", or "module:Class".
        quiet: Whether to show no progress.

    Returns:
        The finished run. It is stored in its directory, which `open_run` opens later.

    Raises:
        ConfigError: A setting is wrong, or names code that other processes cannot import.
        MethodError: The method cannot serve a client.
        FailedRunError: The method's code failed at the server or at every client.

    Example:
        >>> import pfedes
        >>> small = {"data.limit": 100, "runtime.fleet": "serial", "runtime.report": False}
        >>> run = pfedes.run(clients=2, rounds=1, settings=small, quiet=True)
        >>> run.finished, len(run.rounds), len(run.summary["accuracies"])
        (True, 1, 2)
    """

    chosen = configure(
        config,
        method=method,
        data=data,
        data_dir=data_dir,
        clients=clients,
        participation=participation,
        rounds=rounds,
        seed=seed,
        workers=workers,
        device=device,
        precision=precision,
        cluster=cluster,
        tls=tls,
        participants=participants,
        settings=settings,
    )
    if of_this_program(chosen.method) and "fleet" not in chosen.runtime.model_fields_set:
        chosen = configure(chosen, settings={"runtime.fleet": "serial"})
    with spectators(listener, track=track, quiet=quiet) as listeners:
        return _done(Federation(chosen, out=out, select=select, listener=listeners))


def resume(
    directory: Path | str,
    *,
    rounds: int | None = None,
    from_round: int | None = None,
    cluster: str | None = None,
    tls: Path | str | None = None,
    data_dir: Path | str | None = None,
    trust_code: bool = False,
    select: Selector = uniform,
    listener: Listener | None = None,
    track: str | Sequence[str] = (),
    quiet: bool = False,
) -> Run:
    """Continues a run after its last complete round. The result is that of a run without a stop.

    Args:
        directory: The run directory.
        rounds: A new total of rounds, to extend the run.
        from_round: A round to go back to first, if it is still kept.
        cluster: Address of a Dask scheduler that does the rest.
        tls: Directory with the certificates of the cluster.
        data_dir: Where the data lies now, if it has moved.
        trust_code: Whether to import code that no run of yours has used on this machine.
        select: Chooses the clients of a round, as in `run`.
        listener: Is told about the progress of the run.
        track: Names of trackers, as in `run`.
        quiet: Whether to show no progress.

    Returns:
        The finished run.


    Raises:
        StoreError: There is no run, or it names code that is not trusted.
    """
    with spectators(listener, track=track, quiet=quiet) as listeners:
        return _done(
            Federation.resume(
                directory,
                rounds=rounds,
                from_round=from_round,
                cluster=cluster,
                tls=tls,
                data_dir=data_dir,
                trust_code=trust_code,
                select=select,
                listener=listeners,
            )
        )


def _done(federation: Federation) -> Run:
    finished = federation.run()
    if finished.rounds and not finished.trained:
        log.warning("%s: the accuracies are those of untrained models", finished.why_untrained())
    return finished
