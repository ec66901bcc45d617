"""Formats numbers, and text from elsewhere, for people."""

from math import isfinite

WITHHELD = "withheld"
"""Shown instead of a number that participants of a federation do not send."""


def percent(value: float | None) -> str:
    """A share, 0 to 1, in percent; "-" for None.

    Example:
        >>> percent(0.9722)
        '97.22 %'
    """
    return "-" if value is None else f"{100 * value:.2f} %"


def told(accuracy: float | None) -> str:
    """An accuracy, unless participants keep it to themselves."""
    return WITHHELD if accuracy is None else percent(accuracy)


def count(value: float | None) -> str:
    """A number with three digits and a unit from a million on; "-" for None.

    Example:
        >>> count(4430), count(12_345_678)
        ('4,430', '12.3 M')
    """
    if value is None:
        return "-"
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}"


def measured(value: float | None, unit: str) -> str:
    """A number with the unit in which it is measured.

    Example:
        >>> measured(177_200, "B"), measured(1_772_000, "B")
        ('177,200 B', '1.77 MB')
    """
    text = count(value)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def computed(flops: float | None) -> str:
    """A number of FLOPs; None if the participants of a federation withhold it."""
    return f"FLOP {WITHHELD}" if flops is None else measured(flops, "FLOP")


def counted(number: int, thing: str) -> str:
    """A number of things, in the plural if it is not 1.

    Example:
        >>> counted(1, "client"), counted(2, "client")
        ('1 client', '2 clients')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def between(least: float, most: float) -> str:
    """A range of numbers, or the number if both ends are equal.

    Example:
        >>> between(443, 443), between(20, 443)
        ('443', '20 to 443')
    """
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def listed(names: list[str], most: int) -> str:
    """The first names of a list, and how many more there are.

    Example:
        >>> listed(["ada", "ben", "cleo"], 2)
        'ada, ben, 1 more'
    """
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def plain(text: str) -> str:
    """The text without control characters, because names may come from anybody."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def clock(seconds: float) -> str:
    """A duration in minutes and seconds, from an hour on in hours and minutes.

    Args:
        seconds: The duration in seconds.

    Example:
        >>> clock(75), clock(7_500)
        ('1:15 min', '2:05 h')
    """
    if not isfinite(seconds):  # of a damaged row
        return "-"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
