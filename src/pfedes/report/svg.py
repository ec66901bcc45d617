"""A figure as part of a page: small, with its own ids, in the page's colours."""

import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from pfedes.report.figures import AMBER, BLUE, GREEN, GREY, GRID, INK, ORANGE, PURPLE, SKY, STYLE

SCREEN = 96  # dots per inch of what is drawn as a picture

COLOURS = {
    INK: "currentColor",
    GRID: "var(--grid)",
    GREY: "var(--grey)",
    **{
        colour: f"var(--{name})"
        for name, colour in {
            "blue": BLUE,
            "orange": ORANGE,
            "amber": AMBER,
            "sky": SKY,
            "green": GREEN,
            "purple": PURPLE,
        }.items()
    },
}
"""Colours that the style sheet sets, so that figures can be read on light and on dark."""


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as an <svg> element. `name` is unique on its page."""
    text = io.StringIO()
    # Letters stay letters: smaller, sharp at any size, in the page's own font.
    with mpl.rc_context({**STYLE, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", transparent=True, dpi=SCREEN)
    svg = text.getvalue()
    # The text next to it describes it: screen readers need not read out the axes.
    svg = svg[svg.index("<svg") :].replace("<svg", '<svg aria-hidden="true"', 1)
    # What is about the file, not the figure; and a style that would apply to the whole page.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'style="[^"]*"', lambda style: _of_the_page(style[0]), svg)
    referred = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(
        r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in referred else "", svg
    )
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()


def _of_the_page(style: str) -> str:
    """A style attribute that leaves font and colours to the style sheet."""
    style = re.sub(r"font: (?:[a-z0-9]+ )*([0-9.]+px)[^;\"]*", r"font-size: \1", style)
    style = re.sub(r"font-family: [^;\"]*;? ?", "", style)
    return re.sub("#[0-9a-f]{6}", lambda colour: COLOURS.get(colour[0], colour[0]), style)
