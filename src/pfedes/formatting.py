"""Numbers and foreign words as people read them."""

from math import isfinite

WITHHELD = "withheld"
"""What stands for a number that participants of a federation keep to themselves."""


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def told(accuracy: float | None) -> str:
    """An accuracy, unless participants keep it to themselves."""
    return WITHHELD if accuracy is None else percent(accuracy)


def count(value: float | None) -> str:
    """A number people can read: 4430, then 12.3 M."""
    if value is None:
        return "-"
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}"


def measured(value: float | None, unit: str) -> str:
    """177,200 B, then 1.77 MB."""
    text = count(value)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def computed(flops: float | None) -> str:
    """FLOPs, which participants of a federation keep to themselves."""
    return f"FLOP {WITHHELD}" if flops is None else measured(flops, "FLOP")


def counted(number: int, thing: str) -> str:
    """1 client, 2 clients."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def between(least: float, most: float) -> str:
    """443, or 20 to 443."""
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def listed(names: list[str], most: int) -> str:
    """The first few names, and how many more there are."""
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def plain(text: str) -> str:
    """What a terminal shows, and does not obey: names may come from anybody."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def clock(seconds: float) -> str:
    """A time as people read it."""
    if not isfinite(seconds):  # of a damaged row
        return "-"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
