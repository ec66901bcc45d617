"""A participant's file: its model, its data, and what it consents to."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from pfedes.config.limits import Limits
from pfedes.core.measures import Metric
from pfedes.core.names import Name
from pfedes.core.precision import Precision
from pfedes.core.protocol import BY_DEFAULT, Share
from pfedes.data.tables import TableConfig, file_in, is_file
from pfedes.errors import ConfigError, unknown
from pfedes.files import at_home
from pfedes.imports import absolute, without_directory
from pfedes.methods import METHODS
from pfedes.section import Section

RUNS = {"partition", "models", "method", "train", "federation"}
"""Sections by which the configuration of a run, given by mistake, is recognised."""

FOLDER = "folder:"
"""The prefix of names of data that is a directory of images."""


Fingerprint = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
"""The fingerprint of a participant's public key."""


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in METHODS:
            raise ValueError(unknown("method", name, METHODS))
    return names


class Participant(Section):
    """A participant with its own model and data, as its file describes it.

    Its fields are the keys of that file: see the page on configuration.

    Example:
        >>> from pfedes import Participant
        >>> Participant(name="north", model="models.py:network", data="data.py:samples").methods
        ('pfedes',)
    """

    name: Name = Field(description="name of letters, digits and . _ -; unique in the federation")
    model: str = Field(description="package.module:function, file.py:function, or cnn1..cnn5")
    data: str = Field(
        description="package.module:function, file.py:function, folder:PATH, hf:NAME, csv:FILE, "
        "parquet:FILE, npz:FILE (in MedMNIST's form)"
    )
    head: str = Field("", description="the model's last linear layer; '' = found by trying it")
    classes: tuple[str, ...] = Field(
        (), description="names of labels 0, 1, ... in the data; [] = the federation's"
    )
    labels: Mapping[str, str] = Field(
        {}, description="names in the federation for its own folders, labels and classes"
    )
    image_size: int = Field(0, ge=0, description="folder and hf: resize images to this size")
    methods: Annotated[tuple[str, ...], AfterValidator(_known)] = Field(
        ("pfedes",), min_length=1, description="methods that this participant consents to"
    )
    consents: Mapping[str, Any] = Field(
        {},
        description="keys of a method that change what leaves, with values other than the defaults",
    )
    share: tuple[Share, ...] = Field(
        BY_DEFAULT,
        description="what may leave with an upload: samples (how many), loss, scores, zeros; "
        "measures (confusion matrices and AUC) if federation.measures is true",
    )
    own_seed: bool = Field(
        False,
        description="whether to draw weights, batches and dropout with its own secret seed when "
        "it joins, instead of the seed of the run",
    )
    limits: Limits = Limits()
    state: str = Field(
        "", description="directory of its models and records, when it joins a federation"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="device that it trains on, when it joins"
    )
    threads: int = Field(
        1, ge=1, description="number of threads that it trains with, when it joins"
    )
    metric: Metric | Literal[""] = Field(
        "",
        description="measure that chooses its best round, when it joins: accuracy | "
        "balanced_accuracy "
        "| macro_f1 | auc; '' = the federation's evaluate.metric",
    )
    compare_alone: bool = Field(
        False, description="at the end, train alone for as many rounds, to see what joining gained"
    )
    rollback: bool = Field(
        False, description="whether the coordinator may take it back to an earlier round"
    )
    precision: Precision | Literal[""] = Field(
        "", description="precision of its own training: float32 | bf16; '' = the federation's"
    )
    table: TableConfig = TableConfig()
    peers: Mapping[Name, Fingerprint] = Field(
        {}, description="secure sum: fingerprints that were compared with the other participants"
    )

    def placeless(self) -> "Participant":
        """The same without the places where its code, data and states lie on its machine."""
        data = FOLDER if self.data.startswith(FOLDER) else without_directory(self.data)
        if data.startswith("hf:/"):  # a copy in a directory
            data = "hf:"
        if is_file(data):
            data = data.partition(":")[0] + ":"
        place = {"model": without_directory(self.model), "data": data, "state": ""}
        return self.model_copy(update=place)


def read_participant(path: Path) -> Participant:
    """A participant.toml; names of files in it are relative to it."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read participant {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    return participant_from(tree, path.parent, str(path))


def participant_from(tree: Mapping[str, Any], directory: Path, where: str) -> Participant:
    """The participant of a table, its names made absolute; or one line that names what is wrong."""
    if RUNS & tree.keys() and not {"name", "model"} & tree.keys():
        raise ConfigError(
            f"{where} is the configuration of a run: a participant file has name, model and data"
        )
    try:
        participant = Participant(**tree)
    except ValidationError as error:
        known = list(Participant.model_fields)
        problems = []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            if problem["type"] == "extra_forbidden":
                problems.append(unknown("key", key, known))
            elif problem["type"] == "missing":
                field = Participant.model_fields[key]
                problems.append(f"{key} is missing ({field.description})")
            else:
                message = problem["msg"].removeprefix("Value error, ")
                problems.append(f"{key}: {message[0].lower()}{message[1:]}")
        raise ConfigError(f"{where}: {'; '.join(problems)}") from None
    found = {key: absolute(getattr(participant, key), directory) for key in ("model", "data")}
    if (data := participant.data).startswith(FOLDER):
        place = directory / at_home(data.removeprefix(FOLDER))
        found["data"] = f"{FOLDER}{place.absolute()}"
    elif is_file(data):
        found["data"] = file_in(data, directory)
    if participant.state:
        found["state"] = str((directory / at_home(participant.state)).absolute())
    return participant.model_copy(update=found)
