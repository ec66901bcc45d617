"""What a participant of a federation keeps on its own machine.

    STATE/
        config.toml           the federation's configuration, with this participant alone
        seat.json             which of its versions was accepted, and how it did
        sent.jsonl            everything that left, message by message
        answers.jsonl         the tasks it answered, with the FLOPs and seconds that each took
        digest.key            the key of the digests by which the coordinator knows its versions
        join.log              what happened, with times
        state/clients/        its versions, as in any run
        state/own.seed        the seed of its own training, if it has one (`own_seed`)
        state/noise.key       the secret of its own noise, if it adds any
        state/privacy.jsonl   the releases with noise that its changes went into, over all runs
        state/last.safetensors  what the server sent for the last answer
        state/downloads/      what its model takes from the server, of the last round and the best

From here its model is used without the coordinator.
"""

import json
import secrets
import time
from pathlib import Path
from typing import Any

from pfedes.config import Config, stored_config, with_method_imported
from pfedes.core.names import check_name
from pfedes.core.payload import Payload, encode, read_payload
from pfedes.data.dataset import Progress, silent
from pfedes.deploy.participant.answers import Answers
from pfedes.deploy.participant.standing import JOIN_LOCK, SEAT, ParticipantRecord, read_record
from pfedes.errors import DamageError, StoreError
from pfedes.files import (
    append_line,
    make_private_directory,
    parse_json,
    read,
    remove,
    whole_lines,
    write_atomically,
)
from pfedes.population.simulation import Simulation
from pfedes.results.personal import PersonalModel, personal_at
from pfedes.results.provenance import Moment
from pfedes.store.client_store import ClientStore, numbered
from pfedes.store.trust import check_code, code_of, key_of_state, remember

LAST = "last.safetensors"


class ParticipantState:
    """A participant's own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.clients = ClientStore(self.state / "clients")
        self.sent_file = directory / "sent.jsonl"
        self.answers = Answers(directory)

    @property
    def is_joined(self) -> bool:
        """Whether 'pfedes join' was ever started with this directory."""
        return (self.directory / JOIN_LOCK).is_file() or self.sent_file.is_file()

    def make(self) -> None:
        """Makes the directory, for its owner alone, if it is not there."""
        make_private_directory(self.directory)
        make_private_directory(self.state)

    @property
    def config(self) -> Config:
        """The stored configuration; nothing that it names is imported."""
        return stored_config(self.directory / "config.toml")

    def record(self) -> ParticipantRecord | None:
        """The record; None before the first task."""
        return read_record(self.directory)

    def write_record(self, record: ParticipantRecord) -> None:
        write_atomically(self.directory / SEAT, record.model_dump_json(indent=2).encode())

    def own_seed(self) -> int:
        """A secret seed. It is drawn once: the split of the data follows from it."""
        path = self.state / "own.seed"
        if not path.exists():
            write_atomically(path, str(secrets.randbits(63)).encode())
        text = read(path).decode(errors="replace")
        if not (text.isascii() and text.isdecimal()):
            raise DamageError(f"{path} is damaged: it is not a number")
        return int(text)

    def write_config(self, config: Config) -> None:
        remember(key_of_state(self.directory), config)
        write_atomically(self.directory / "config.toml", config.to_toml().encode())

    def write_measured(self, record: ParticipantRecord, download: Payload) -> None:
        """Writes down how the model did with a download, which stays as long as that matters."""
        assert record.measured is not None
        place = self._download(record.run, record.measured.round)
        make_private_directory(place.parent)
        write_atomically(place, encode(download))
        self.write_record(record)
        used = {measured.round for measured in (record.measured, record.best_measured) if measured}
        for round in set(numbered(place.parent, ".safetensors")) - used:
            remove(self._download(record.run, round))

    def last(self) -> Payload | None:
        """The download of the last answer; None before the first one."""
        path = self.state / LAST
        return read_payload(path) if path.exists() else None

    def write_last(self, download: Payload) -> None:
        write_atomically(self.state / LAST, encode(download))

    def log_sent(self, kind: str, payload: Payload) -> None:
        """Before anything leaves it is written down; `kind` says what was asked for."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "kind": kind,
            "floats": payload.floats,
            "metadata": payload.metadata,
            "tensors": {name: list(tensor.shape) for name, tensor in payload.tensors.items()},
            "values": payload.meta,
            "sha256": payload.digest(),  # docs/deploy.md says how anybody computes it
        }
        append_line(self.sent_file, json.dumps(line).encode())

    def sent(self) -> list[dict[str, Any]]:
        """Every message that left; of an unfinished line the message did not."""
        path = self.sent_file
        if not path.exists():
            return []
        lines = [parse_json(path, line) for line in whole_lines(path)]
        for number, line in enumerate(lines, 1):
            if not _is_account(line):
                raise DamageError(f"{path} is damaged: line {number} does not describe a message")
        return lines

    def answered(self) -> dict[int, int]:
        """The numbers that left in each round of the present run."""
        record = self.record() or ParticipantRecord()
        found = {}
        for line in self.sent():
            values = line["values"]
            if line["kind"] == "answer" and values.get("up/run") == record.run:
                found[values["up/round"]] = line["floats"]
        return found

    def personal(
        self,
        client: str = "",
        *,
        best: bool = False,
        data_dir: Path | str | None = None,
        trust_code: bool = False,
        progress: Progress = silent,
    ) -> PersonalModel:
        """The participant's model, with all it takes to predict with it or export it.

        The best round is the best by this participant's own validation samples; `data_dir` is where
        its images lie now, if they have moved. Its code is imported only if it joined from this
        directory as this user, or with `trust_code`.
        """
        record, config = self.record(), self.config
        if data_dir is not None:
            config = config.with_data_in(data_dir)
        (participant,) = config.participants
        if client not in ("", participant.name):
            raise StoreError(f"{self.directory} belongs to {participant.name}, not to {client}")
        if record is None or not record.run:
            raise StoreError(f"{self.directory}: {participant.name} has not taken part yet")
        names = code_of(config)
        check_code(key_of_state(self.directory), self.directory, names, trust_code=trust_code)
        simulation = Simulation(with_method_imported(config), progress)
        round, version, download = self._in_use(simulation, record, best)
        answers = [floats for number, floats in self.answered().items() if number <= round]
        moment = Moment(
            *(record.run, round, version, best, answers, record.about),
            metric=record.metric,
            chosen_over=participant.name,
        )
        return personal_at(simulation, self.clients, participant.name, moment, download)

    def _in_use(
        self, simulation: Simulation, record: ParticipantRecord, best: bool
    ) -> tuple[int, int, Payload]:
        """The round and the version of the model that is wanted, and its part from the server."""
        if simulation.method.evaluated_after_aggregation(simulation.context(record.round)):
            measured = record.best_measured if best else record.measured
            if measured is None:
                raise StoreError(f"{self.directory}: no round has been measured after aggregation")
            place = self._download(record.run, measured.round)
            return measured.round, measured.version, read_payload(place)
        if best and not record.best:
            raise StoreError(f"{self.directory} has no best round: none was accepted, or measured")
        if best:
            return record.best, record.best, Payload()
        return record.round, record.accepted, Payload()

    def _download(self, run: str, round: int) -> Path:
        return self.state / "downloads" / check_name(run) / f"{round:05d}.safetensors"


def _is_account(line: Any) -> bool:
    """Whether this tells of a message: the file may come from anybody."""
    return (
        isinstance(line, dict)
        and isinstance(line.get("kind"), str)
        and type(line.get("floats")) is int
        and isinstance(line.get("values"), dict)
    )


def is_seat(directory: Path) -> bool:
    """Whether this is a participant's `state` directory."""
    return (directory / SEAT).is_file()
