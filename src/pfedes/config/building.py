"""Builds configurations from files, options and settings.

A setting is named `section.key` everywhere: in files, in `--set`, in error messages.
"""

import logging
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from pfedes.config.config import Config
from pfedes.config.natural import sites_in
from pfedes.config.participant import FOLDER, Participant, participant_from, read_participant
from pfedes.core.protocol import BY_DEFAULT, MEASURES
from pfedes.data.partition import PartitionConfig
from pfedes.data.sources import DataConfig
from pfedes.data.tables import TableConfig, file_in, is_file
from pfedes.errors import ConfigError
from pfedes.files import at_home
from pfedes.methods import METHODS, make_known, method_class
from pfedes.methods.base import Method, MethodConfig
from pfedes.section import explain

log = logging.getLogger(__name__)


class StoredMethodConfig(MethodConfig):
    """Keys of a method that is not imported, as they are written."""

    model_config = ConfigDict(extra="allow")


def configure(
    file: "Path | str | Config | None" = None,
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
) -> Config:
    """Builds the configuration of a run from a TOML file, short options and dotted settings.

    Settings win over options, options over the file, the file over the defaults.

    Args:
        file: A TOML file, or another configuration; None for the defaults.
        method: A method as an object with its own hyper-parameters, as a class, or by its name,
            which takes those of the file if the file names the same method.
        data: Name of the data set, `data.source`.
        data_dir: Directory of the data set, `data.dir`.
        clients: Number of clients, `partition.clients`.
        participation: Share of clients per round, `train.participation`.
        rounds: Number of rounds, `train.rounds`.
        seed: Random seed of the run.
        workers: Number of worker processes, `runtime.workers`.
        device: Device on which clients train, `runtime.device`.
        precision: Precision of local training, `train.precision`.
        cluster: Address of a Dask scheduler.
        tls: Directory with the certificates `ca.pem`, `cert.pem` and `key.pem` of the cluster.
        participants: Participants, or paths of their files, instead of a partition.
        settings: Values by `section.key`. `method.extractor` may be a function; one that a notebook
            or script defines needs `runtime.fleet = "serial"`.

    Returns:
        The configuration, checked.

    Raises:
        ConfigError: A key is unknown or a value is out of range; the message names every one.

    Example:
        >>> from pfedes import configure
        >>> config = configure(clients=5, rounds=3, settings={"train.lr": 0.05})
        >>> config.partition.clients, config.train.rounds, config.train.lr
        (5, 3, 0.05)
        >>> configure(settings={"train.epoch": 3})
        Traceback (most recent call last):
        pfedes.errors.ConfigError: unknown key 'train.epoch'; did you mean 'train.epochs'?
    """
    place = Path(file).parent if isinstance(file, Path | str) else Path()
    if isinstance(file, Config):
        tree = file.model_dump(mode="json", exclude_unset=True)
        tree["method"] = {**file.method.model_dump(exclude_unset=True), "name": file.method.name}
    else:
        tree = _read(Path(file)) if file is not None else {}
    if isinstance(method, type):
        method = method()
    if isinstance(method, Method):
        make_known(method)
        tree["method"] = method.config.model_dump()
    elif method is not None:
        _choose_method(tree, method)
    options = {
        "data.source": data,
        "data.dir": str(data_dir) if data_dir is not None else None,
        "partition.clients": clients,
        "train.participation": participation,
        "train.rounds": rounds,
        "seed": seed,
        "runtime.workers": workers,
        "runtime.device": device,
        "train.precision": precision,
        **on_cluster(cluster, tls),
    }
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in {**given, **(settings or {})}.items():
        if key == "method.name":
            _choose_method(tree, str(value))
        else:
            _put(tree, key, value)
    _make_paths_absolute(tree)
    _read_participants(tree, place, participants or ())
    return with_sites(validate(tree), place)


def with_sites(config: Config, directory: Path) -> Config:
    """A natural partition written out: one participant for each site of the data.

    The result says who takes part, as if every site had a participant.toml.
    """
    if config.partition.kind != "natural" or config.brings_own:
        return config
    sites = sites_in(config.data, config.partition, config.models, config.table, directory)
    agreed = {key: getattr(config.federation, key) for key in config.federation.model_fields_set}
    people = sites.participants
    if config.federation.measures:  # whoever holds the rows of all asks nobody's consent
        shared = {"share": (*BY_DEFAULT, MEASURES)}
        people = tuple(person.model_copy(update=shared) for person in people)
    return config.model_copy(
        update={
            "data": DataConfig(),
            "partition": PartitionConfig(),
            "models": config.models.model_copy(update={"table": ()}),
            "table": TableConfig(),
            "federation": config.federation.model_copy(update={**sites.agreed, **agreed}),
            "participants": people,
        }
    )


def on_cluster(address: str | None, tls: Path | str | None) -> dict[str, str | None]:
    """The settings of work on a cluster; none where no address is given."""
    place = Path(tls) if tls is not None else None
    files = {"tls_ca": "ca.pem", "tls_cert": "cert.pem", "tls_key": "key.pem"}
    return {
        "runtime.fleet": "cluster" if address else None,
        "runtime.cluster": address,
        **{f"runtime.{key}": str(place / file) if place else None for key, file in files.items()},
    }


def configure_from(config: Config, method: str, settings: Mapping[str, Any], seed: int) -> Config:
    """The same configuration for another method (with its defaults), settings and seed."""
    tree = config.model_dump(mode="json", exclude={"compare"})
    tree |= {"method": {"name": method}, "seed": seed}
    for key, value in settings.items():
        _put(tree, key, value)
    return validate(tree)


def stored_config(file: Path) -> Config:
    """The configuration that lies in a run directory: read, and nothing that it names imported.

    The keys of a user's own method are taken as they are written.
    """
    tree = _read(file)
    _make_paths_absolute(tree)
    _read_participants(tree, file.parent, ())
    return validate(tree, imports=False)


def with_method_imported(config: Config) -> Config:
    """A stored configuration, its method's keys checked by the method's own class."""
    model = method_class(config.method.name).Config
    try:
        method = model(**config.method.model_dump())
    except ValidationError as error:
        raise ConfigError("; ".join(explain(error, model, "method"))) from None
    return config.model_copy(update={"method": method})


def validate(tree: Mapping[str, Any], *, imports: bool = True) -> Config:
    """The configuration, or one line that names every wrong key."""
    tree = _with_preset(tree)
    problems = []
    if isinstance(compared := tree.get("compare"), Mapping):
        for name in compared:
            _method_config(name, imports)
    if isinstance(section := tree.get("method"), Mapping):
        model = _method_config(str(section.get("name", "pfedes")), imports)
        try:
            tree["method"] = model(**section)
        except ValidationError as error:
            del tree["method"]
            problems += explain(error, model, "method")
    try:
        config = Config(**tree)
    except ValidationError as error:
        problems += explain(error, Config)
    if problems:
        raise ConfigError("; ".join(problems))
    return config


def _method_config(name: str, imports: bool) -> type[MethodConfig]:
    # An unknown name may be that of a class in the program that made the run.
    if imports or name in METHODS:
        return method_class(name).Config
    return StoredMethodConfig


def parse_setting(text: str) -> tuple[str, Any]:
    """`section.key=value`; the value is TOML if it parses, else a string."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes section.key=value, found {text!r}")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = raw
    return key.strip(), value


def _make_paths_absolute(tree: Mapping[str, Any]) -> None:
    """So that the run's own config.toml repeats it from anywhere."""
    for name, keys in {"data": ["dir"], "runtime": ["tls_ca", "tls_cert", "tls_key"]}.items():
        section = tree.get(name)
        if not isinstance(section, dict):
            continue
        for key in keys:
            if isinstance(place := section.get(key), str) and place:
                section[key] = str(at_home(place).absolute())
        if isinstance(source := section.get("source"), str) and source.startswith(FOLDER):
            path = at_home(source.removeprefix(FOLDER))
            section["source"] = f"{FOLDER}{path.absolute()}"
        elif isinstance(source, str) and is_file(source):
            section["source"] = file_in(source, Path())


def _read_participants(
    tree: dict[str, Any], directory: Path, more: Sequence[Path | str | Participant]
) -> None:
    """Files become what they say, so that the run's own config.toml holds everything."""
    given = tree.get("participants", [])
    if not isinstance(given, list):
        raise ConfigError(f"participants = {given!r}: expected a list of participant.toml files")
    found = []
    for number, one in enumerate(given):
        if isinstance(one, str):
            found.append(read_participant(directory / one))
        elif isinstance(one, Mapping):
            found.append(participant_from(one, directory, f"participants[{number}]"))
        else:
            raise ConfigError(f"participants[{number}] = {one!r}: expected the name of a file")
    for other in more:
        found.append(other if isinstance(other, Participant) else read_participant(Path(other)))
    if found:
        tree["participants"] = found


def _with_preset(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree, completed by the keys of the preset."""
    if tree.get("preset") != "released":
        return dict(tree)
    sections = {name: dict(v) if isinstance(v, Mapping) else v for name, v in tree.items()}
    preset: dict[str, dict[str, Any]] = {
        "train": {"epochs": 10, "batch_size": 512, "augment": True},
        "models": {"assign": "round_robin", "init": "shared"},
        "partition": {"split": "official", "rule": "floor"},
    }
    if isinstance(method := tree.get("method", {}), Mapping) and (
        method.get("name", "pfedes") == "pfedes"
    ):
        models = tree.get("models")
        pool = models.get("pool") if isinstance(models, Mapping) else None
        one_model = isinstance(pool, list | tuple) and len(pool) == 1
        preset["method"] = {"mu": 0.5, "extractor_epochs": 10 if one_model else 20}
    for name, keys in preset.items():
        own = sections.setdefault(name, {})
        if isinstance(own, dict):
            sections[name] = {**keys, **own}
    return sections


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _choose_method(tree: dict[str, Any], name: str) -> None:
    """Keys of `[method]` belong to the method it names: with another one they are ignored."""
    section = tree.get("method", {})
    if not isinstance(section, dict):
        raise ConfigError(f"method = {section!r}: expected a section [method]")
    if section.get("name", "pfedes") == name:
        tree["method"] = {**section, "name": name}
        return
    if aside := [key for key in section if key != "name"]:
        log.warning("the method is %s; ignored keys: [method] %s", name, ", ".join(aside))
    tree["method"] = {"name": name}


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{key}: {part!r} is not a section")
    tree[last] = value
