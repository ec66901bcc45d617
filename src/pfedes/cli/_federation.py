"""Code and output that the commands for federations across machines share."""

import json as json_module

from pfedes.cli._display import facts, output
from pfedes.deploy.participant.baseline import trained_alone
from pfedes.deploy.participant.state import ParticipantState
from pfedes.formatting import computed, percent
from pfedes.results.classwise import one_class_words, rows_of
from pfedes.results.closing import class_by_class
from pfedes.results.run import Run


def show_end(run: Run, *, quiet: bool, json: bool) -> None:
    summary = run.summary
    if json:
        print(json_module.dumps({**summary, "directory": str(run.directory)}, indent=2))
    elif quiet:
        print(run.directory)
    else:
        rows = {
            "finished": f"{summary['rounds']} rounds, {summary['clients']} participants",
            "accuracy": f"{percent(summary['initial_accuracy'])} before, "
            f"{percent(summary['mean_accuracy'])} after"
            if summary["accuracies"]
            else "stays with the participants",
            **class_by_class(run, summary),
            "report": str(run.directory / "report.html"),
        }
        output().print(facts(rows))


def show_seat(seat: ParticipantState) -> None:
    record = seat.record()
    if record is None or record.scores is None:
        return
    rows = {"accuracy": f"{percent(record.scores.accuracy)} of its own test samples"}
    if record.before is not None:
        rows["accuracy"] += f", {percent(record.before.accuracy)} before"
    rows |= rows_of(record.scores, seat.config.federation.classes)
    numbers = sum(line["floats"] for line in seat.sent())
    rows["sent"] = f"{numbers:,} numbers, listed in {seat.sent_file}"
    if answers := [answer for answer in seat.answers.all() if answer.run == record.run]:
        flops = computed(sum(answer.flops for answer in answers))
        seconds = sum(answer.seconds for answer in answers)
        rows["computed"] = f"{flops} in {seconds:.1f} s; neither number was sent"
    if seat.config.participants[0].compare_alone:
        rows["alone"] = _alone(seat)
    rows["use it"] = f"pfedes predict {seat.directory} FILE"
    output().print(facts(rows))


def _alone(seat: ParticipantState) -> str:
    if (scores := trained_alone(seat)) is None:
        return "training alone failed"
    said = f"{percent(scores.accuracy)} after training alone for as many rounds"
    words = one_class_words(scores.test, seat.config.federation.classes)
    return f"{said}; that model {words}" if words else said
