"""Fills in a page: one file that needs no other file and no network."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pfedes.formatting import count, counted, listed, measured, percent, told
from pfedes.version import __version__


def fill(template: str, **values: Any) -> str:
    """The page. All that is filled in is escaped, except figures that `inline_svg` made."""
    pages = Environment(
        loader=PackageLoader("pfedes.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "percent": percent,
        "told": told,
        "count": count,
        "counted": counted,
        "measured": measured,
        "listed": listed,
    }
    script = _part("sort.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return pages.get_template(template).render(
        version=__version__,
        style=Markup(_part("style.css")),
        script=Markup(script),
        # A second lock beside the escaping: no other script can run, and nothing can be fetched.
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        **values,
    )


def _part(name: str) -> str:
    return files("pfedes.report").joinpath(name).read_text(encoding="utf-8")
