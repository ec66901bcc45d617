"""Data with sites, written out as one participant for each site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pfedes.config.participant import Participant
from pfedes.data import sources
from pfedes.data.partition import PartitionConfig
from pfedes.data.sources import IMAGENET, DataConfig
from pfedes.data.tables import (
    TableConfig,
    columns_of,
    is_table,
    labels_of,
    levels_of,
    sites_of,
)
from pfedes.errors import ConfigError, DataError
from pfedes.imports import absolute, is_own
from pfedes.methods import METHODS
from pfedes.models import ModelsConfig


@dataclass(frozen=True)
class Sites:
    """The sites as participants, and their terms: keys of `[federation]`."""

    participants: tuple[Participant, ...]
    agreed: Mapping[str, Any] = field(default_factory=dict)


def sites_in(
    data: DataConfig,
    partition: PartitionConfig,
    models: ModelsConfig,
    table: TableConfig,
    directory: Path,
) -> Sites:
    """A participant for each site that the data names. `directory` is where models' files are."""
    if not (is_table(data.source) or sources.has_sites(data.source)):
        raise ConfigError(
            "partition.kind = 'natural' needs data.source = 'csv:FILE', 'parquet:FILE', "
            "'folder:PATH' or 'hf:NAME'"
        )
    if not table.site:
        raise ConfigError("partition.kind = 'natural' needs table.site, the column of the sites")
    _check_keys(data, partition)
    if is_table(data.source):
        return _of_table(data, models, table, directory)
    return _of_pictures(data, models, table, directory)


def _check_keys(data: DataConfig, partition: PartitionConfig) -> None:
    """A key that changes nothing would be believed to."""
    given = partition.model_copy(update={"kind": PartitionConfig().kind})
    for section, found in (("partition", given), ("data", DataConfig(limit=data.limit))):
        default = type(found)()
        for key, value in found:
            if value != getattr(default, key):
                raise ConfigError(
                    f"{section}.{key} = {value!r} is not for a natural partition: "
                    "every site is a client, and its samples are divided 8:1:1"
                )


def _of_table(data: DataConfig, models: ModelsConfig, table: TableConfig, directory: Path) -> Sites:
    """Levels of categories that the configuration leaves open are those of the whole table: sites
    can only share an extractor if their rows become equally many numbers.
    """
    wrong = [name for name in models.table if not is_own(name)]
    if not models.table or wrong:
        raise ConfigError(
            "partition.kind = 'natural' needs models.table = ['file.py:function', ...], which "
            f"build networks for rows{f'; found {wrong[0]!r}' if wrong else ''}"
        )
    columns = columns_of(data.source, table)
    everybody = range(len(columns[table.label]))
    classes = tuple(sorted(set(labels_of(columns, everybody, table).tolist())))
    if len(classes) < 2:
        raise DataError(f"column {table.label!r} names one class only, {classes[0]!r}")
    categories = {
        name: levels or levels_of(columns, name, table) for name, levels in table.categories.items()
    }
    table = table.model_copy(update={"categories": categories})
    people = _people(
        sites_of(columns, table), models.table, table, directory, {"data": data.source}
    )
    return Sites(people, {"classes": classes})


def _of_pictures(
    data: DataConfig, models: ModelsConfig, table: TableConfig, directory: Path
) -> Sites:
    columns = sources.about_rows(data, [table.site])
    dataset = sources.load(data)
    place = {
        # A participant has no data.dir: a copy in a directory is named by it.
        "data": f"hf:{data.dir}" if data.dir and data.source.startswith("hf:") else data.source,
        "image_size": data.image_size,
    }
    names = models.table or models.pool
    people = _people(sites_of(columns, table), names, table, directory, place)
    agreed: dict[str, Any] = {"classes": dataset.class_names, "channels": data.channels}
    if data.normalise != "none":
        found = (dataset.mean, dataset.std) if data.normalise == "dataset" else IMAGENET
        agreed |= dict(zip(("mean", "std"), found, strict=True))
    return Sites(people, agreed)


def _people(
    sites: Sequence[str],
    models: Sequence[str],
    table: TableConfig,
    directory: Path,
    keys: Mapping[str, Any],
) -> tuple[Participant, ...]:
    people = []
    for number, site in enumerate(sites):
        try:
            person = Participant(
                name=site,
                model=absolute(models[number % len(models)], directory),
                # One machine holds all rows, so no consent is needed.
                methods=tuple(METHODS),
                table=table.model_copy(update={"only": site}),
                **keys,
            )
        except ValidationError:
            raise ConfigError(
                f"site {site!r} cannot name a client: rename it in column {table.site!r} to "
                "letters a-z, digits, '.', '_' and '-', beginning with a letter or digit"
            ) from None
        people.append(person)
    return tuple(people)
