"""The model card: what a model was trained on, how well it does, and how to use it."""

import json
import math
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from pfedes.core.measures import METRICS, Metric, Tally
from pfedes.core.shapes import Shape, described, is_image, kind_of
from pfedes.data.preprocess import Preprocess
from pfedes.export.onnx import TOLERANCE
from pfedes.formatting import listed, percent
from pfedes.methods.fedmrl import Fused
from pfedes.methods.fedproto import NearestPrototype
from pfedes.results.classwise import one_class_words, untested_words
from pfedes.results.personal import PersonalModel

MOST_CLASSES = 20  # that it never saw, by name
MOST_CONFUSED = 12  # classes; a wider table is not read
TASKS = {1: "tabular-classification", 3: "image-classification"}
"""Hugging Face's name of the task, by the number of dimensions of an input."""


def card(personal: PersonalModel, samples: int, difference: float | None) -> str:
    """The card as Markdown; `difference` is what ONNX differs by, None without an ONNX file."""
    facts = personal.facts
    # Not HTML: inserted texts are pfedes' own or go through `cell`.
    pages = Environment(
        loader=PackageLoader("pfedes.export", "."),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["cell"] = _cell
    pages.filters["quoted"] = json.dumps  # a string of JSON is one of YAML, too
    scores = facts.scores
    known = set(facts.classes)
    unseen = [name for name in personal.class_names if name not in known]
    return pages.get_template("card.md").render(
        facts=facts,
        sent=facts.sent,
        class_names=personal.class_names,
        shape=personal.shape,
        inputs=_inputs(personal.shape),
        kind=kind_of(personal.shape),
        task=TASKS.get(len(personal.shape)),
        pictures=personal.sees_pictures,
        table=personal.table,
        columns=_columns(personal.table) if personal.table is not None else [],
        example='"image.png"' if personal.sees_pictures else "numbers",
        own=_own(facts.architecture) if personal.untrained is not None else None,
        numbers=sum(tensor.numel() for tensor in personal.model.state_dict().values()),
        nearest=isinstance(personal.model, NearestPrototype),
        fused=isinstance(personal.model, Fused),
        never_trained=not facts.trained,
        scores=[
            row
            for row in (
                ("validation", scores.val_correct, scores.val_total),
                ("test", scores.test_correct, scores.test_total),
            )
            if row[2]
        ],
        tally=scores.test,
        only_class=one_class_words(scores.test, personal.class_names),
        untested=untested_words(scores.test, personal.class_names),
        labels=_labels(scores.test),
        confusion=_confusion(scores.test),
        most_confused=MOST_CONFUSED,
        measures={"validation": _measures(scores.val), "test": _measures(scores.test)},
        unseen=listed(unseen, MOST_CLASSES),
        samples=samples,
        difference=difference,
        tolerance=f"{TOLERANCE:g}",
        percent=percent,
        interval=_interval,
    )


@dataclass(frozen=True)
class Own:
    """The module and function of a participant's own network."""

    module: str
    function: str


HUGGING_FACE: dict[Metric, str] = {
    "balanced_accuracy": "balanced_accuracy",
    "macro_f1": "f1",
    "auc": "roc_auc",
}
"""The names of the measures in a header, besides the accuracy."""


def _measures(tally: Tally | None) -> list[tuple[str, str, float]]:
    """Type, name and value of what is known besides the accuracy."""
    found = []
    for metric, kind in HUGGING_FACE.items():
        if tally is not None and (value := tally.by(metric)) is not None:
            found.append((kind, METRICS[metric], value))
    return found


def _labels(tally: Tally | None) -> list[int]:
    """The classes that test samples have, or were predicted as."""
    return sorted(tally.held.keys() | tally.called.keys()) if tally is not None else []


def _confusion(tally: Tally | None) -> dict[tuple[int, int], int]:
    counts = tally.counts if tally is not None else ()
    return {(label, called): count for label, called, count in counts}


def _columns(table: Preprocess) -> list[tuple[str, str, str]]:
    """For each column its name, its known values, and how it is converted."""
    rows = []
    for number in table.numbers:
        known = "no value" if number.low is None else f"{number.low:g} to {number.high:g}"
        filled = "refused" if number.fill is None else f"{number.fill:g}"
        became = f"(value - {number.mean:g}) / {number.std:g}; missing: {filled}"
        rows.append((number.name, known, became))
    for category in table.categories:
        missing = "unknown" if category.fill else "refused"
        became = f"one 0 or 1 each, and one for unknown; missing: {missing}"
        rows.append((category.name, ", ".join(category.levels), became))
    return rows


def _own(name: str) -> Own:
    module, _, function = name.rpartition(":")
    return Own(module.removesuffix(".py"), function)


def _inputs(shape: Shape) -> str:
    """`images of 32x32 with 3 channels`, `rows of 30 numbers`."""
    if not is_image(shape):
        return described(shape)
    return described(shape).replace("images", f"images of {shape[1]}x{shape[2]}")


def _interval(right: int, total: int) -> str:
    """Wilson's: unlike the normal one it holds for few samples and for all right."""
    z = 1.96
    share = right / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return f"{100 * max(0.0, centre - half):.1f} to {100 * min(1.0, centre + half):.1f} %"


def _cell(text: str) -> str:
    """One line in which nothing ends a table's cell or starts markup: names come from anywhere."""
    line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]" else letter for letter in line)
