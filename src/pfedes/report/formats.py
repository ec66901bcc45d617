"""Numbers as people read them."""


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def count(value: float | None) -> str:
    """A number people can read: 4430, then 12.3 M."""
    if value is None:
        return "-"
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}"
