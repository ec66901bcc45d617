"""`pfedes data`: data sets, and how they are divided among clients."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from pfedes.api.spectator import working
from pfedes.cli._display import facts, output, save_figure
from pfedes.cli._options import Clients, ConfigFile, Data, DataDir, Seed, Settings, effective
from pfedes.data import sources
from pfedes.data.sources import SOURCES
from pfedes.population.simulation import Simulation
from pfedes.report.figures import partition_figure
from pfedes.report.holdings import held_by

app = typer.Typer(
    help="List and describe data sets and partitions.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list")
def list_sources() -> None:
    """List the data sets by name."""
    table = Table("name", "description", box=None, pad_edge=False)
    for name, text in SOURCES.items():
        table.add_row(name, text)
    output().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of the data set.", show_default=False)],
    *,
    data_dir: DataDir = None,
) -> None:
    """Open a data set and describe it."""
    config = effective(None, None, data=name, data_dir=data_dir)
    with working() as progress:
        dataset = sources.load(config.data, progress)
    counts = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    channels, height, width = dataset.shape
    output().print(
        facts(
            {
                "data set": dataset.name,
                "samples": f"{len(dataset):,} ({dataset.official_train:,} official training)",
                "images": f"{channels} x {height} x {width}",
                "classes": f"{len(dataset.class_names)}: {', '.join(dataset.class_names)}",
                "per class": f"{counts.min():,} to {counts.max():,}",
                "mean": " ".join(f"{value:.4f}" for value in dataset.mean),
                "std": " ".join(f"{value:.4f}" for value in dataset.std),
                "SHA-256": dataset.digest,
            }
        )
    )


@app.command()
def partition(
    config: ConfigFile = None,
    *,
    data: Data = None,
    data_dir: DataDir = None,
    clients: Clients = None,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Image file to write.")] = Path("partition.png"),
) -> None:
    """Show which client holds which classes, as a table and as a PNG."""
    chosen = effective(config, settings, data=data, data_dir=data_dir, clients=clients, seed=seed)
    with working() as progress:
        simulation = Simulation(chosen, progress)
    population = simulation.population
    names = population.class_names
    table = Table(box=None, pad_edge=False)
    table.add_column("client", no_wrap=True)
    table.add_column("model")
    for heading in ("train", "val", "test"):
        table.add_column(heading, justify="right")
    table.add_column("samples of each class", overflow="fold")
    all_held = np.array([held_by(population, client) for client in population.names])
    for client, held in zip(population.names, all_held, strict=True):
        table.add_row(
            client,
            population.architectures[client],
            *(str(len(part)) for part in population.labels(client).values()),
            ", ".join(f"{name}: {n}" for name, n in zip(names, held, strict=True) if n),
        )
    save_figure(partition_figure(all_held, names), out)
    output().print(table)
    output().print(f"picture: {out}", soft_wrap=True)
