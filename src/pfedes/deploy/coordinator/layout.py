"""The federation's directory on the coordinator's machine.

DIR/
    federation.toml    the configuration, as `pfedes serve` was given it
    provision/         the certificate authority, and who was given a kit: keep it private
    kits/NAME/         what a participant is given
    certificates/      everybody's present certificate: no secret
    revoked.json       who was expelled, and since when
    server/            the server's own workspace: its keys, policies, jobs and logs
    admin/             the keys by which jobs are submitted
    job/               the job: three files that name classes of pfedes, and no code
    run/               the run directory, as of any simulation
    sums/              of the present round, what was masked and is not summed yet
    presence.json      who is connected, and who is in the present job
    told.json          who was told the end of which run, after which round
    awaited.json       who has not answered yet in the present round
    refused.json       who does not take part in the present job, and why
    ended.json         the last job that participants ended, and their names
    strikes.json       who kept the others waiting, and until when it is not asked
    trouble.txt        what ended a job, until the process that submits jobs has seen it
    server.log         what FLARE's server says
    serve.log          what `pfedes serve` did, with times
    serving.lock       held by the one `pfedes serve`
    strikes.lock       held while strikes.json is changed
    changing.lock      held while kits are made and federation.toml is changed
"""

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from pfedes.files import write_atomically, writing
from pfedes.section import Section, read_as
from pfedes.store.lock import alone, is_held

REVOKED = "revoked.json"


@dataclass(frozen=True)
class Presence:
    """The connected participants and those in the current job, each by its session's token.

    A site that was restarted is connected by another token, and not in the job any more.
    """

    connected: Mapping[str, str]
    in_job: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether a site can answer in this job."""
        return name in self.in_job and self.connected.get(name) == self.in_job[name]

    def waiting(self) -> list[str]:
        """Names of connected participants that cannot take part before the next job."""
        return [name for name in self.connected if not self.has(name)]


class Awaited(Section):
    """The participants that have not answered yet in a round."""

    round: int
    sites: list[str]


class Ended(Section):
    """The participants that ended a job."""

    job: str
    sites: list[str]


_PRESENCE, _AWAITED, _ENDED = TypeAdapter(Presence), TypeAdapter(Awaited), TypeAdapter(Ended)
_REFUSED = TypeAdapter(dict[str, str])


class Layout:
    """The paths of all files of a federation."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "federation.toml"
        self.provision = directory / "provision"
        self.authority = self.provision / "federation" / "state" / "cert.json"  # FLARE's names
        self.kits = directory / "kits"
        self.certificates = directory / "certificates"
        self.revoked = directory / REVOKED
        self.server = directory / "server"
        self.admin = directory / "admin"
        self.job = directory / "job"
        self.run = directory / "run"
        self.sums = directory / "sums"
        self.told = directory / "told.json"
        self.awaited_file = directory / "awaited.json"
        self.trouble = directory / "trouble.txt"
        self.strikes = directory / "strikes.json"
        self._refused = directory / "refused.json"
        self._ended = directory / "ended.json"
        self.changing = directory / "changing.lock"
        self._serving = directory / "serving.lock"

    def certificate(self, name: str) -> Path:
        """The path of a participant's present certificate; in older federations, in its kit."""
        kept = self.certificates / f"{name}.crt"
        return kept if kept.exists() else self.kits / name / "participant.crt"

    @property
    def is_begun(self) -> bool:
        """Whether a federation was made here, or was going to be."""
        return self.config.exists() or self.changing.exists()

    def served(self) -> AbstractContextManager[int]:
        """Locks the federation for the one process that runs the server and submits jobs."""
        return alone(self._serving, f"another 'pfedes serve' is at work in {self.directory}")

    def is_served(self) -> bool:
        """Whether `pfedes serve` is at work here: without it, there is no server."""
        return is_held(self._serving)

    def refuse_if_served(self) -> None:
        """Says so before anything is changed under its feet."""
        with writing(self._serving):
            may_be_held = self._serving.exists()
        if may_be_held:
            with self.served():
                pass

    def write_awaited(self, round: int, sites: Collection[str]) -> None:
        """Writes which participants have not answered yet, for the process that prints it."""
        tree = {"round": round, "sites": sorted(sites)}
        write_atomically(self.awaited_file, json.dumps(tree).encode())

    def awaited(self) -> tuple[int, list[str]]:
        """The present round, and the participants that have not answered yet."""
        found = read_as(_AWAITED, self.awaited_file, Awaited(round=0, sites=[]))
        return found.round, found.sites

    def write_presence(self, presence: Presence) -> None:
        tree = {"connected": dict(presence.connected), "in_job": dict(presence.in_job)}
        write_atomically(self.directory / "presence.json", json.dumps(tree).encode())

    def presence(self) -> Presence:
        return read_as(_PRESENCE, self.directory / "presence.json", Presence({}, {}))

    def write_refused(self, refusals: Mapping[str, str]) -> None:
        """Why connected participants do not take part, for people."""
        if refusals or self._refused.exists():
            write_atomically(self._refused, json.dumps(dict(refusals)).encode())

    def refused(self) -> dict[str, str]:
        return read_as(_REFUSED, self._refused, {})

    def write_ended(self, job: str, sites: Collection[str]) -> None:
        """Writes which participants ended a job, for the process that gives strikes."""
        tree = {"job": job, "sites": list(sites)}
        write_atomically(self._ended, json.dumps(tree).encode())

    def ended(self) -> tuple[str, list[str]]:
        """The last job that participants ended, and their names."""
        found = read_as(_ENDED, self._ended, Ended(job="", sites=[]))
        return found.job, found.sites

    def write_trouble(self, text: str) -> None:
        """Writes what ended a job, for the process that submits jobs."""
        write_atomically(self.trouble, f"{text}\n".encode(errors="replace"))
