"""The pages in a real browser: nothing leaves them, and everybody can use them."""

from pathlib import Path
from typing import Any

import pytest

from pages import SCRIPT, SECTIONS
from pfedes import Federation
from pfedes.cli import execute
from running import failing, small, tiny

WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")
PAGES = ("run", "long", "comparison")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run in which a client fails with evil words, and its comparison with another."""
    place = tmp_path_factory.mktemp("pages")
    first, second = place / "<img src=x onerror=hacked=2>", place / "other"
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, f"{SCRIPT}<img src=x onerror='window.hacked = 3'>")
        Federation(
            small(partition__clients=12, train__rounds=1, runtime__report=True), out=first
        ).run()
    long = "synthetic:samples=400,classes=10,size=16,channels=1"
    Federation(tiny("standalone", data__source=long), out=second).run()
    comparison = place / "comparison.html"
    assert execute(["report", str(first), str(second), "--out", str(comparison)]) == 0
    return {
        "run": first / "report.html",
        "long": second / "report.html",
        "comparison": comparison,
    }


class Visit:
    """A page as it was opened, with all that it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def column(self, caption: str, number: int) -> list[str]:
        found: list[str] = self.page.locator(f"table:has-text('{caption}') tbody tr").evaluate_all(
            "(rows, n) => rows.map(row => row.cells[n].textContent)", number
        )
        return found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_opens_without_any_request(
    name: str, width: int, scheme: str, browser: Any, pages: dict[str, Path]
) -> None:
    with Visit(browser, pages[name], width, scheme) as visit:
        visit.page.locator("details").evaluate_all("all => all.forEach(d => { d.open = true; })")
        root = "document.documentElement"
        assert visit.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith("data:")] == [
            pages[name].as_uri()
        ]
        assert visit.page.evaluate("window.hacked") is None
        # Words in figures follow the scheme, as the page's own do.
        ink = visit.page.evaluate("getComputedStyle(document.body).color")
        words = visit.page.locator("figure svg text").first
        assert words.evaluate("text => getComputedStyle(text).fill") == ink
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_all_sections_are_seen(browser: Any, pages: dict[str, Path]) -> None:
    with Visit(browser, pages["run"], 390, "light") as visit:
        assert visit.page.locator("h2").all_inner_texts() == SECTIONS
        for link in visit.page.locator("nav a").all():
            assert visit.page.locator(str(link.get_attribute("href"))).is_visible()
        for figure in visit.page.locator("figure svg").all():
            box = figure.bounding_box()
            assert box["width"] > 200
            assert box["height"] > 80


def test_a_screen_reader_finds_its_way(browser: Any, pages: dict[str, Path]) -> None:
    for name in PAGES:
        with Visit(browser, pages[name], 1440, "light") as visit:
            page = visit.page
            assert page.get_by_role("main").count() == page.get_by_role("navigation").count() == 1
            assert page.get_by_role("heading", level=1).count() == 1
            pictures = page.get_by_role("img")
            assert pictures.count() == page.locator("svg").count() > 0
            assert all(len(str(p.get_attribute("aria-label"))) > 20 for p in pictures.all())
            for table in page.locator("table").all():
                assert table.locator("th[scope]").count() == table.locator("th").count() > 0
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "content"


def test_a_table_is_sorted_by_mouse_and_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    clients = "Clients, worst-off first"
    with Visit(browser, pages["run"], 1440, "light") as visit:
        table = visit.page.locator(f"table:has-text('{clients}')")
        header = table.get_by_role("columnheader", name="test accuracy")
        assert header.get_attribute("aria-sort") == "ascending"
        accuracies = [float(text.split()[0]) for text in visit.column(clients, 1)]
        assert len(accuracies) == 12
        assert accuracies == sorted(accuracies)

        header.get_by_role("button").click()
        assert header.get_attribute("aria-sort") == "descending"
        falling = [float(text.split()[0]) for text in visit.column(clients, 1)]
        assert falling == sorted(accuracies, reverse=True) != accuracies

        by_name = table.get_by_role("columnheader", name="client", exact=True)
        by_name.get_by_role("button").focus()
        visit.page.keyboard.press("Enter")
        names = [f"client-{number:04d}" for number in range(12)]
        assert visit.column(clients, 0) == names
        assert by_name.get_attribute("aria-sort") == "ascending"
        assert header.get_attribute("aria-sort") is None
        visit.page.keyboard.press("Space")
        assert visit.column(clients, 0) == names[::-1]

        # Numbers sort as numbers, whatever their unit: 14 of 15 after 2 of 3.
        table.get_by_role("columnheader", name="correct").get_by_role("button").click()
        correct = [int(text.split()[0]) for text in visit.column(clients, 2)]
        assert correct == sorted(correct)
