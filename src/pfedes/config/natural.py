"""A table with a site column, written out as one participant for each site."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pfedes.config.participant import Participant
from pfedes.data.tables import TableConfig, is_table, labels_of, levels_of, rows_of, sites_of
from pfedes.errors import ConfigError
from pfedes.imports import absolute, is_own
from pfedes.methods import METHODS


def participants_of_sites(
    source: str, table: TableConfig, models: Sequence[str], directory: Path
) -> tuple[tuple[Participant, ...], tuple[str, ...]]:
    """A participant for each site, and the names of the classes in the whole table.

    Levels of categories that the configuration leaves open are those of the whole table: sites
    can only share an extractor if their rows become equally many numbers.
    """
    if not is_table(source):
        raise ConfigError(
            "partition.kind = 'natural' needs data.source = 'csv:FILE' or 'parquet:FILE'"
        )
    if not table.site:
        raise ConfigError("partition.kind = 'natural' needs table.site, the column of the sites")
    wrong = [name for name in models if not is_own(name)]
    if not models or wrong:
        raise ConfigError(
            "partition.kind = 'natural' needs models.table = ['file.py:function', ...], which "
            f"build networks for rows{f'; found {wrong[0]!r}' if wrong else ''}"
        )
    classes = tuple(sorted(set(labels_of(rows_of(source, table), table).tolist())))
    categories = {
        name: levels or levels_of(source, name, table.missing_words)
        for name, levels in table.categories.items()
    }
    people = []
    for number, site in enumerate(sites_of(source, table.site)):
        try:
            person = Participant(
                name=site,
                model=absolute(models[number % len(models)], directory),
                data=source,
                # One machine holds all rows: nobody's consent is asked for.
                methods=tuple(METHODS),
                table=table.model_copy(update={"only": site, "categories": categories}),
            )
        except ValidationError as error:
            (first, *_) = error.errors()
            raise ConfigError(f"site {site!r} cannot name a client: {first['msg']}") from None
        people.append(person)
    return tuple(people), classes
