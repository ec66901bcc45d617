"""The live page in a real browser: it follows a run, and everybody can use it."""

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pages import SCRIPT
from pfedes import Federation
from pfedes.core.payload import Payload, encode
from pfedes.store.manifest import Extent, MetricsFile
from pfedes.store.run_store import RunStore
from running import small

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install 'pfedes[dev]'"
)
pytest.importorskip("starlette", reason="needs the extra 'watch'")

EVIL = f"{SCRIPT}<img src=x onerror='window.hacked = 3'>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the first under an evil name and with an evil client and class in its files."""
    place = tmp_path_factory.mktemp("watched") / "runs"
    evil = place / "<img src=x onerror=hacked=2>"
    Federation(small(train__rounds=1), out=evil).run()
    store = RunStore(evil)
    manifest = store.manifest()
    rows = store.rows("clients.jsonl", manifest)
    rows[0] |= {"client": EVIL, "status": "failed", "reason": EVIL}
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (evil / "clients.jsonl").write_bytes(data)
    extent = Extent(length=len(data), crc32=zlib.crc32(data))
    metrics = {**manifest.metrics, "clients.jsonl": extent}
    store.write_manifest(manifest.model_copy(update={"metrics": metrics}))
    kept = store.kept_data()
    assert kept is not None
    names = json.dumps([EVIL, *map(str, range(1, 10))])
    forged = Payload(kept.tensors, {**kept.meta, "class_names": names})
    store.kept_path.write_bytes(encode(forged))
    Federation(small(train__rounds=1), out=place / "plain").run()
    return place


@contextmanager
def serving(*directories: Path) -> Iterator[str]:
    """The address of a page over these directories."""
    from pfedes.watch.server import Server

    server = Server(directories)
    thread = threading.Thread(target=server.run, args=(lambda _: None,))
    thread.start()
    try:
        yield server.address
    finally:
        server.stop()
        thread.join()


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(runs) as address:
        yield address


class Visit:
    """The page as it was opened, with all that it said and asked for."""

    def __init__(self, browser: Any, address: str, width: int = 1440, scheme: str = "light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.locator("#overview tbody tr").first.wait_for()

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def choose(self, name: str) -> None:
        self.page.get_by_role("link", name=name).click()
        self.page.locator("#clients tbody tr").first.wait_for()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_names_are_text(width: int, scheme: str, browser: Any, address: str) -> None:
    with Visit(browser, address, width, scheme) as visit:
        visit.choose("<img src=x")
        assert EVIL in visit.page.locator("#troubles").inner_text()
        assert f"10: {EVIL}, 1" in visit.page.locator("#facts").inner_text()
        assert visit.page.evaluate("window.hacked") is None
        assert visit.page.locator("img, body script").count() == 0
        root = "document.documentElement"
        assert visit.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        assert visit.complaints == []
        assert all(url.startswith((address, "data:")) for url in visit.requests)
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_the_page_follows_a_run(browser: Any, address: str, runs: Path) -> None:
    with Visit(browser, address) as visit:
        visit.choose("plain")
        before = visit.page.locator("#tiles dd").first.inner_text().split(" of ")[0]
        assert before == "1"
        Federation.resume(runs / "plain", rounds=3).run()
        visit.page.get_by_text("3 of 3").last.wait_for()
        label = visit.page.locator("#curve [role=img]")
        after = re.compile("after round 3$")
        playwright.expect(label).to_have_attribute("aria-label", after)
        assert visit.complaints == []


def used(visit: Visit) -> tuple[int, int]:
    """Bytes of JavaScript, and nodes of the document, that a page holds on to."""
    session = visit.context.new_cdp_session(visit.page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    nodes = session.send("Memory.getDOMCounters")["nodes"]
    session.detach()
    return heap, nodes


def test_a_page_keeps_up_with_a_thousand_rounds_and_does_not_grow(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every 40th commit is awaited; the page and the server look more often than they usually do,
    so that the test takes seconds."""
    monkeypatch.setattr("pfedes.watch.pages.READING", 0.02)
    monkeypatch.setattr("pfedes.watch.pages.TICK", 0.02)
    place = tmp_path / "runs" / "long"
    Federation(small(train__rounds=1), out=place).run()
    config = place / "config.toml"
    config.write_text(config.read_text().replace("rounds = 1\n", "rounds = 1000\n"))
    store = RunStore(place)
    manifest = first = store.manifest()
    files: tuple[MetricsFile, ...] = ("rounds.jsonl", "clients.jsonl")
    rows = {name: store.rows(name, first) for name in files}
    sizes = {}
    with serving(tmp_path / "runs") as address, Visit(browser, address) as visit:
        progress = visit.page.locator("#tiles dd").first
        playwright.expect(progress).to_have_text("1 of 1000")
        for done in range(40, 1001, 40):
            metrics = manifest.metrics | {
                name: store.append(
                    name,
                    [
                        {**row, "round": n}
                        for n in range(manifest.round + 1, done + 1)
                        for row in of
                    ],
                    manifest.metrics[name],
                )
                for name, of in rows.items()
            }
            manifest = first.model_copy(update={"round": done, "metrics": metrics})
            store.write_manifest(manifest)
            playwright.expect(progress).to_have_text(f"{done} of 1000", timeout=30_000)
            if done in (280, 1000):  # with as many points as a curve has, and at the end
                sizes[done] = used(visit)
        label = visit.page.locator("#curve [role=img]")
        playwright.expect(label).to_have_attribute("aria-label", re.compile("after round 1000$"))
        assert visit.complaints == []
    heap, nodes = (after / before for before, after in zip(sizes[280], sizes[1000], strict=True))
    assert nodes < 1.2
    assert heap < 1.5


def test_a_coordinators_federation_is_on_the_page(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is connected, since when, and who was warned; names may come from anybody."""
    pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")
    from pfedes.deploy.coordinator.status import Person, Status

    people = [
        Person(EVIL, True, "2026-11-18 10:00:00", 3, 0.875, strikes=2, paused_until=5),
        Person("ben", False, None, 0, None, refused=EVIL),
        Person("cleo", None, None, 1, 0.5, revoked=True),
    ]
    status = Status(True, 1, 4, False, people, [EVIL])
    monkeypatch.setattr("pfedes.deploy.coordinator.status.status_of", lambda _: status)
    place = tmp_path / "federation"
    place.mkdir()
    (place / "federation.toml").write_text("")
    with serving(place) as address, Visit(browser, address, 390) as visit:
        visit.page.get_by_text("federation: not begun").wait_for()
        headings = visit.page.locator("#detail h3:visible")
        assert headings.all_inner_texts() == ["Participants"]
        assert not visit.page.locator("#curve").is_visible()
        Federation(small(train__rounds=1), out=place / "run").run()
        visit.page.get_by_text("federation: finished").wait_for()
        assert "What is run" in headings.all_inner_texts()
        assert visit.page.locator("#curve").is_visible()
        table = visit.page.locator("#people tbody")
        playwright.expect(table.locator("tr")).to_have_count(3, timeout=30_000)
        shown = [row.locator("th, td").all_inner_texts() for row in table.locator("tr").all()]
        assert [cell.strip() for cell in shown[0]] == [
            *(EVIL, "yes", "2026-11-18 10:00:00", "2", "87.50 %", "3"),
            "2 strikes, not asked before round 5",
        ]
        assert shown[1][1:4] == ["no", "-", "0"]
        assert shown[1][6] == f"does not take part: {EVIL}"
        assert shown[2][1] == "revoked"
        assert visit.page.locator("#server").inner_text() == "The server answers."
        assert visit.page.locator("#warnings").inner_text() == EVIL
        assert visit.page.evaluate("window.hacked") is None
        root = "document.documentElement"
        assert visit.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        assert visit.complaints == []


def test_the_keyboard_suffices(browser: Any, address: str) -> None:
    with Visit(browser, address) as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        header = page.get_by_role("columnheader", name="run")
        names = page.locator("#overview tbody th").all_inner_texts()
        header.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert header.get_attribute("aria-sort") == "descending"
        assert page.locator("#overview tbody th").all_inner_texts() == names[::-1]
        page.get_by_role("link", name="plain").focus()
        page.keyboard.press("Enter")
        page.locator("#detail-title:focus").wait_for()
        assert page.locator("#detail-title").inner_text().startswith("plain")


def test_another_origin_and_a_wrong_token_see_nothing(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(address.rsplit("/", 2)[0] + "/wrong/")
    assert answer.status == 403
    page.goto("about:blank")
    fetched = "address => fetch(address).then(() => 'read', () => 'refused')"
    assert page.evaluate(fetched, address) == "refused"
    context.close()
