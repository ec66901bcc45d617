"""Phrases that slow a reader, and what to write instead: `make check` refuses them.

The prose of this project is plain technical English: subject, verb, object, and the common word.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTEAD = {
    r"(go|goes|went|gone|going) on": "continue",
    r"mend(s|ing)?": "fix",
    r"but for (what|the|its|it|a)": "except",
    r"of (one|somebody|anybody)'s own": "your own, or whose own it is",
    r"needless": "optional, not needed",
    r"heard of": "last answered, is known",
    r"in (the )?midst": "during",
    r"whomsoever|whosoever|hereby|thereof|wherefrom": "name the thing",
    r"in order to": "to",
    r"utili[sz]e[sd]?": "use",
    r"please note( that)?|it should be noted( that)?": "say it",
    r"at this point in time": "now",
    r"anew": "again, a new one",
    r"for ever": "forever",
    r"for want of": "for lack of",
    r"as ever": "unchanged",
    r"(is|are) called so": "say what is reported, and where",
    r"(is|are) set aside": "is ignored",
    r"keys set aside": "ignored keys",
    r"(nobody|one) of that name": "no such user, no such client",
    r"in the manner of|in \w+'s manner": "like",
    r"(?<!there )is no (certificate|directory|file|kit|member|number|parameter|text)": "is not a",
    r"what (became|has become) of": "the outcome, the result",
    r"in sight of": "visible to, with a progress display",
    r"counts? alike": "have the same weight",
    r"likewise": "also, or say it again",
    r"(near |close )?at hand": "present, available",
    r"who (comes|differs|drops|answers) (back|out|first|late)": "a client that ...",
}
"""By regular expression, of whole words."""

PLACES = ("src", "docs", "examples", "tests", "website")
KINDS = {".py", ".md", ".html", ".js", ".template", ".toml"}
EXCEPT = {Path(__file__).name, "test_documented.py"}  # these quote the phrases


def worn(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and replacement of every worn phrase in a text, also across line ends."""
    plain = re.sub(r"\s", " ", text)
    for phrase, instead in INSTEAD.items():
        for match in re.finditer(rf"\b(?:{phrase})\b", plain, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1, match[0], instead


def files() -> Iterable[Path]:
    inside = (path for place in PLACES for path in (ROOT / place).rglob("*"))
    return sorted(
        path
        for path in (*inside, *ROOT.glob("*.md"))
        if path.suffix in KINDS and path.name not in EXCEPT and "fixtures" not in path.parts
    )


def main() -> int:
    """Prints every worn phrase with its place; 1 if there is one."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}: write {instead}"
        for path in files()
        for line, phrase, instead in worn(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) if found else "no worn phrases")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
