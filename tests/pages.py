"""Reading a page the way a reader does: its tables, by caption, and what its pictures say."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

SCRIPT = "<script>window.hacked = 1</script>"
SECTIONS = [
    "What was run",
    "Accuracy over rounds",
    "Clients",
    "Class by class",
    "Partition",
    "What may leave each client, and what was sent",
    "Costs",
    "Enhanced images",
    "Failures and rejected uploads",
    "Effective configuration",
    "Repeat it",
]


@dataclass
class ReadTable:
    caption: str = ""
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def column(self, name: str) -> list[str]:
        return [row[self.header.index(name)] for row in self.rows]


class Page(HTMLParser):
    """Tables, section titles, pictures' descriptions, and all text outside of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[ReadTable] = []
        self.headings: list[tuple[str, str]] = []
        self.pictures: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self._cells: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id" and value]
        if given.get("role") == "img":
            self.pictures.append(given["aria-label"] or "")
        if tag == "table":
            self.tables.append(ReadTable())
        if tag == "tr":
            self._cells = []
        if tag in ("th", "td"):
            self._cells.append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        if tag == "tr":
            table = self.tables[-1]
            if "thead" in self._open:
                table.header = self._cells
            else:
                table.rows.append(self._cells)

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self._open):
            return
        self.words.append(data)
        words = " ".join(data.split())
        if not words:
            return
        inside = next((t for t in reversed(self._open) if t in {"caption", "th", "td"}), "")
        if inside == "caption":
            self.tables[-1].caption = f"{self.tables[-1].caption} {words}".strip()
        elif inside:
            self._cells[-1] = f"{self._cells[-1]} {words}".strip()
        if self._open and self._open[-1] in {"h1", "h2", "h3"}:
            self.headings.append((self._open[-1], words))

    def table(self, caption: str) -> ReadTable:
        (found,) = [table for table in self.tables if table.caption.startswith(caption)]
        return found
