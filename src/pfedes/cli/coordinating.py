"""What the commands of a federation across machines do, and what they say."""

import json as json_module
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from rich.table import Table

from pfedes.alone import trained_alone
from pfedes.cli.checking import show_check
from pfedes.cli.display import facts, output
from pfedes.cli.interrupted import Interrupted, interruptible
from pfedes.config import configure
from pfedes.errors import ConfigError
from pfedes.participant import read_participant
from pfedes.report.formats import percent
from pfedes.run import Run
from pfedes.seat import Seat


def show_serving(file: Path, out: Path, *, kits_only: bool, quiet: bool, json: bool) -> None:
    check_extra()
    from pfedes.fleet.flare.layout import Layout
    from pfedes.fleet.flare.serving import Serving, prepare

    say = silent if quiet or json else said
    layout = Layout(out.absolute())
    if not kits_only:
        layout.refuse_if_served()
    for name in prepare(layout, configure(file)):
        say(f"{layout.kits / name} is for {name}: hand it over so that nobody else sees it")
    if kits_only:
        return
    try:
        with interruptible():
            run = Serving(layout, say).run()
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; 'pfedes serve {file} --out {out}' goes on") from None
    _show_end(run, quiet=quiet, json=json)


def show_joining(kit: Path, file: Path, *, leave: bool) -> None:
    check_extra()
    from pfedes.fleet.flare.joining import Joining
    from pfedes.fleet.flare.site import TERMS

    joining = Joining(kit.absolute(), read_participant(file), said)
    show_check(file, kit / TERMS)
    try:
        with interruptible():
            joining.run(leave=leave)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; 'pfedes join {kit} {file}' goes on") from None
    _show_seat(joining.seat)


def show_status(directory: Path, *, json: bool) -> None:
    check_extra()
    from pfedes.fleet.flare.layout import Layout
    from pfedes.fleet.flare.status import status_of

    found = status_of(Layout(directory.absolute()))
    if json:
        print(json_module.dumps(found.tree(), indent=2))
        return
    output().print(facts({"federation": str(directory), "round": found.progress}))
    table = Table("participant", "connected", "last contact", "accuracy", box=None, pad_edge=False)
    for person in found.people:
        accuracy = "-" if person.accuracy is None else percent(person.accuracy)
        connected = {True: "yes", False: "no", None: "?"}[person.connected]
        table.add_row(person.name, connected, person.last_contact or "-", accuracy)
    output().print(table)


def show_request(file: Path) -> None:
    check_extra()
    from pfedes.fleet.flare.joining import key_of
    from pfedes.fleet.flare.keys import write_request

    participant = read_participant(file)
    request = Path(f"{participant.name}.csr")
    write_request(participant.name, key_of(participant), request)
    said(f"{request} is for the coordinator: 'pfedes admit {participant.name} --request {request}'")


def show_admission(name: str, directory: Path, request: Path | None) -> None:
    check_extra()
    from pfedes.fleet.flare.layout import Layout
    from pfedes.fleet.flare.serving import admit

    kit = admit(Layout(directory.absolute()), name, request)
    secret = "" if request is not None else ": hand it over so that nobody else sees it"
    said(f"{kit} is for {name}{secret}")


def show_rehearsal(participants: int, rounds: int | None, out: Path) -> None:
    check_extra()
    from pfedes.fleet.flare.rehearsal import rehearse

    try:
        with interruptible():
            rehearsal = rehearse(out.absolute(), participants, said, rounds=rounds)
    except KeyboardInterrupt:
        raise Interrupted("stopped") from None
    table = Table("participant", "model", "before", "after", "sent", box=None, pad_edge=False)
    for name, model, seat in rehearsal.people:
        record = seat.record()
        if record is None or record.before is None or record.scores is None:
            table.add_row(name, model, "-", "-", "-")
            continue
        sent = sum(line["floats"] for line in seat.sent())
        before, after = percent(record.before.accuracy), percent(record.scores.accuracy)
        table.add_row(name, model, before, after, f"{sent:,} numbers")
    output().print(table)
    output().print(f"report: {rehearsal.run.directory / 'report.html'}", soft_wrap=True)


def check_extra() -> None:
    if find_spec("nvflare") is None:
        raise ConfigError("federations across machines need the extra 'flare': "
                          "pip install 'pfedes[flare]'")  # fmt: skip


def said(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def silent(text: str) -> None:
    """For those who asked for nothing but the result."""


def _show_end(run: Run, *, quiet: bool, json: bool) -> None:
    summary = run.summary
    if json:
        print(json_module.dumps({**summary, "directory": str(run.directory)}, indent=2))
    elif quiet:
        print(run.directory)
    else:
        rows = {
            "finished": f"{summary['rounds']} rounds, {summary['clients']} participants",
            "accuracy": f"{percent(summary['initial_accuracy'])} before, "
            f"{percent(summary['mean_accuracy'])} after",
            "report": str(run.directory / "report.html"),
        }
        output().print(facts(rows))


def _show_seat(seat: Seat) -> None:
    record = seat.record()
    if record is None or record.scores is None:
        return
    rows = {"accuracy": f"{percent(record.scores.accuracy)} of its own test samples"}
    if record.before is not None:
        rows["accuracy"] += f", {percent(record.before.accuracy)} before"
    rows["sent"] = f"{sum(line['floats'] for line in seat.sent()):,} numbers, see sent.jsonl"
    if seat.config.participants[0].compare_alone:
        alone = trained_alone(seat)
        rows["alone"] = f"{percent(alone)} after training as long by itself"
    rows["use it"] = f"pfedes predict {seat.directory} FILE"
    output().print(facts(rows))
