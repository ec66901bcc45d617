"""The code blocks of a page, and what a reader who follows the page does with them.

`<!-- run -->` before a block says that a test runs it. A TOML or Python block whose first line is
`# NAME.toml` or `# NAME.py` is the content of that file.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUN = "<!-- run -->"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}.*)?\n)*? {4}\S.*\n(?:(?: {4}.*)?\n)*")
_FILE = re.compile(r"# ([\w./-]+\.(?:toml|py))\b")


@dataclass(frozen=True)
class Block:
    language: str  # "" for an indented block: commands, or what they print
    text: str
    runs: bool

    @property
    def file(self) -> str | None:
        """The file whose content this is."""
        named = _FILE.match(self.text) if self.language in ("toml", "python") else None
        return named[1] if named else None

    def commands(self) -> Iterator[list[str]]:
        """The lines of a shell, as words."""
        if self.language not in ("", "sh", "console"):
            return
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := _words(line):
                yield words


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # output of a command, with an apostrophe in it
        return []


def blocks(text: str) -> list[Block]:
    """All code blocks of a Markdown text, in order."""
    found = [(m.start(), m[1], m[2]) for m in _FENCE.finditer(text)]
    bare = _FENCE.sub(lambda m: re.sub(r".", "x", m[0]), text)  # of the same length
    for match in _INDENTED.finditer(bare):
        lines = [line.removeprefix("    ") for line in match[0].strip("\n").splitlines()]
        if any(line.strip() for line in lines):
            found.append((match.start(), "", "\n".join(lines)))
    return [
        Block(language, body, text[:start].rstrip().endswith(RUN))
        for start, language, body in sorted(found)
    ]


def inline_commands(text: str) -> Iterator[list[str]]:
    """Commands of pfedes within sentences."""
    for code in re.findall(r"`(pfedes\s[^`]+)`", text):
        yield _words(" ".join(code.split()))


def pages(root: Path) -> dict[str, str]:
    """The text of every page of the project, by its path."""
    files = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("examples/*/*.md")]
    return {str(file.relative_to(root)): file.read_text() for file in sorted(files)}
