"""The documentation as a site: complete, without a dead link, and usable without a network."""

import csv
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from PIL import Image, ImageStat

import pfedes
from pfedes import methods
from pfedes.cli._lazy import COMMANDS
from pfedes.config import Config
from pfedes.config.participant import Participant
from pfedes.section import Section

pytest.importorskip("mkdocs", reason="needs the extra 'docs': pip install 'pfedes[docs]'")
ROOT = Path(__file__).parents[1]


def build(root: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    """As `make docs` does."""
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        "mkdocs.yml",
        "-d",
        str(out),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        words, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


class Links(HTMLParser):
    """What a page can be entered at, and where it leads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids = {""}
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.ids.add(value)
            if key in ("href", "src") and value:
                self.targets.append(value)
                if tag != "a":
                    self.loaded.append(value)


def dead_links(site: Path) -> list[str]:
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            path, anchor = urldefrag(target)
            if re.match(r"[a-z]+:", target):
                continue
            found = (page.parent / unquote(path)).resolve() if path else page
            known = pages[found].ids if found in pages else {"", anchor}
            if not found.exists() or unquote(anchor) not in known:
                dead.append(f"{page.name}: {target}")
    return dead


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "site"
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_there_and_no_link_is_dead(built: Path) -> None:
    documents = {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    assert documents <= {page.name for page in built.glob("*.html")}
    assert dead_links(built) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x">1</a><a href="c.html">2</a><p id="y">')
    (tmp_path / "b.html").write_text('<a href="a.html#y">3</a><a href="#z">4</a>')
    assert sorted(dead_links(tmp_path)) == ["a.html: b.html#x", "a.html: c.html", "b.html: #z"]


def test_pages_load_nothing_from_elsewhere(built: Path) -> None:
    for page in built.glob("*.html"):
        outside = [link for link in Links(page).loaded if re.match(r"(https?:)?//", link)]
        assert outside == [], page.name


def keys(model: type[Section]) -> Iterator[str]:
    """The names of all keys, also of those in sections."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, Section):
            yield from keys(type(field.default))
        else:
            yield name


def test_the_reference_is_complete(built: Path) -> None:
    commands = Links(built / "commands.html").ids
    assert {f"pfedes-{name}" for name in COMMANDS} <= commands
    names = {anchor.rpartition(".")[2] for anchor in Links(built / "api.html").ids}
    assert {*pfedes.__all__[1:], *methods.__all__} - {"State"} <= names  # which is Payload
    shown = set(
        re.findall(r"<td><code>([\w.]+)</code></td>", (built / "configuration.html").read_text())
    )
    for model in (Config, Participant):
        assert set(keys(model)) <= shown


def test_the_leaderboard_is_on_its_page(built: Path) -> None:
    page = (built / "leaderboard.html").read_text()
    assert "Add a method" in page
    for data in ("cifar10", "cifar100"):
        lines = (ROOT / "results/laptop/leaderboard" / f"{data}.csv").read_text().splitlines()
        for row in csv.DictReader(lines):
            assert f"<td>{row['method']}</td>" in page
            assert re.search(rf">{re.escape(row['accuracy (%)'])}</td>", page)


def test_the_examples_that_pages_use_can_be_had_from_the_site(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built / "examples.zip") as archive:
        archive.extractall(tmp_path)
    mentioned = set()
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text()
        mentioned |= set(re.findall(r"\bexamples/[\w/]+\.(?:py|toml)\b", text))
        assert "](../examples/" not in text or "examples.html#examples-" in (
            (built / f"{page.stem}.html").read_text()
        )
    assert len(mentioned) >= 5
    for name in mentioned:
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    listed = Links(built / "examples.html")
    assert "examples.zip" in listed.targets
    for file in tmp_path.rglob("*.*"):
        assert re.sub(r"\W+", "-", str(file.relative_to(tmp_path))) in listed.ids


def test_the_tested_versions_can_be_had_from_the_site(built: Path) -> None:
    name = "constraints.txt"
    assert (built / name).read_bytes() == (ROOT / name).read_bytes()
    assert name in Links(built / "index.html").targets


def test_make_docs_refuses_a_dead_anchor(tmp_path: Path) -> None:
    """By the same rules, of two pages: the whole site has shown that nothing else is in the way."""
    rules = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    for key in ("hooks", "nav", "extra"):
        del rules[key]
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**rules, "plugins": ["search"]}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "concepts.md").write_text("# Concepts\n")
    for anchor, code in (("concepts", 0), ("nowhere", 1)):
        page = f"# Start\n\n[there](concepts.md#{anchor})\n"
        (tmp_path / "docs" / "index.md").write_text(page)
        done = build(tmp_path, tmp_path / "site")
        assert done.returncode == code, done.stderr
    assert "concepts.md#nowhere" in done.stderr


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_search_works_from_a_disk(scheme: str, browser: Any, built: Path) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((built / "index.html").as_uri())
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
    shown = page.locator("body").get_attribute("data-md-color-scheme")
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    page.locator("input[name=query]").click()
    page.locator("input[name=query]").press_sequentially("manifest")
    page.locator(".md-search-result__item a").first.click(timeout=10_000)
    page.wait_for_url(re.compile(r"(?!.*index\.html).*\.html.*"))
    assert "manifest" in page.inner_text("article").lower()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


def test_pictures_follow_light_and_dark(browser: Any, built: Path) -> None:
    brightness: dict[str, list[float]] = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto((built / "design.html").as_uri())
        for picture in ("how-it-works", "layers", "payload"):
            seen = page.locator(f"img[src='{picture}.svg']").screenshot()
            grey = Image.open(io.BytesIO(seen)).convert("L")
            brightness.setdefault(picture, []).append(ImageStat.Stat(grey).mean[0])
        context.close()
    for light, dark in brightness.values():
        assert light > 200, brightness
        assert dark < 80, brightness
