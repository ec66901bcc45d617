"""The live page, without a browser: who is refused, what is read, and how little is sent."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra 'watch'")

from starlette.testclient import TestClient

from commands import refused
from pfedes import Federation
from pfedes.store.run_store import RunStore
from pfedes.watch import view
from pfedes.watch.bounded import MOST_POINTS, MOST_TEXT, number, text, thinned
from pfedes.watch.pages import _every, make_app
from pfedes.watch.stream import Stream, encoded
from pfedes.watch.view import COLUMNS
from pfedes.watch.watcher import Watcher
from running import contents, flipped, small, with_rows

TOKEN = "the-token"
HERE = "http://127.0.0.1:8123"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("watched") / "runs" / "first"
    Federation(small(train__rounds=2), out=out).run()
    return out


def client_of(*directories: Path) -> TestClient:
    return TestClient(make_app(Watcher(directories), TOKEN, 8123), base_url=HERE)


def watched(*directories: Path) -> tuple[Watcher, str]:
    """A watcher that has read its directories, and the id of the first run in them."""
    watcher = Watcher(directories)
    watcher.read_runs()
    return watcher, next(iter(watcher.entries), "")


@pytest.mark.parametrize("path", ["/", "/events", "/wrong/", "/wrong/events", "//events", "/%ff/"])
def test_without_the_token_nothing_is_shown(path: str) -> None:
    answer = client_of().get(path)
    assert answer.status_code == 403
    assert "token" in answer.text
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example:8123"}, 421),
        ({"host": "127.0.0.1:9"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_other_hosts_and_origins_are_refused(headers: dict[str, str], code: int) -> None:
    assert client_of().get(f"/{TOKEN}/", headers=headers).status_code == code
    assert client_of().get(f"/{TOKEN}/events", headers=headers).status_code == code


@pytest.mark.parametrize("name", ["", "watch.js", "watch.css"])
def test_the_page_is_served_under_a_strict_policy(name: str) -> None:
    answer = client_of().get(f"/{TOKEN}/{name}", headers={"origin": HERE})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_only_reading_is_possible() -> None:
    client = client_of()
    assert client.post(f"/{TOKEN}/").status_code == 405
    assert client.get(f"/{TOKEN}/../../etc/passwd").status_code == 403
    assert client.get(f"/{TOKEN}/style.css").status_code == 404


def test_a_run_is_shown_and_not_written_to(finished: Path) -> None:
    before = contents(finished)
    watcher, id = watched(finished.parent)
    events = dict(Stream(watcher, id).changes())
    (row,) = events["rows"]["changed"]
    assert len(row["cells"]) == len(events["hello"]["columns"]) == len(COLUMNS)
    assert [cell[0] for cell in row["cells"][:3]] == ["first", "finished", "2 of 2"]
    assert [point[0] for point in events["points"]["points"]] == [0, 1, 2]
    assert len(events["detail"]["clients"]) == len(RunStore(finished).manifest().clients)
    assert contents(finished) == before


def test_nothing_is_sent_twice(finished: Path) -> None:
    watcher, id = watched(finished)
    stream = Stream(watcher, id)
    assert stream.changes()
    watcher.read_runs()
    assert stream.changes() == []


def test_a_round_and_a_step_back_are_followed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    Federation(small(train__rounds=1), out=out).run()
    watcher, id = watched(out)
    stream = Stream(watcher, id)
    stream.changes()
    Federation.resume(out, rounds=2).run()
    watcher.read_runs()
    events = dict(stream.changes())
    assert [row["progress"] for row in events["rows"]["changed"]] == [(2, 2)]
    assert not events["points"]["reset"]
    assert [point[0] for point in events["points"]["points"]] == [2]

    RunStore(out).go_back(1)
    watcher.read_runs()
    events = dict(stream.changes())
    assert events["points"]["reset"]
    assert [point[0] for point in events["points"]["points"]] == [0, 1]


def test_a_thousand_rounds_are_followed_in_bounded_space(tmp_path: Path) -> None:
    """Every 25th commit is looked at, as by a page that is sometimes asleep."""
    out = tmp_path / "run"
    Federation(small(train__rounds=1), out=out).run()
    store = RunStore(out)
    first = store.manifest()
    (row,) = store.rows("rounds.jsonl", first)
    watcher, id = watched(out)
    stream = Stream(watcher, id)
    shown: list[Any] = []
    sizes = []
    manifest = first
    for round in range(2, 1001):
        extent = store.append(
            "rounds.jsonl", [{**row, "round": round}], manifest.metrics["rounds.jsonl"]
        )
        metrics = {**manifest.metrics, "rounds.jsonl": extent}
        manifest = first.model_copy(update={"round": round, "metrics": metrics})
        if round % 25 == 0:
            store.write_manifest(manifest)
            watcher.read_runs()
            events = stream.changes()
            sizes.append(sum(len(encoded(event)) for event in events))
            update = dict(events)["points"]
            shown = [*([] if update["reset"] else shown), *update["points"]]
            assert tuple(shown) == watcher.entries[id].view.points
            assert len(shown) <= MOST_POINTS
    assert shown[-1][0] >= 996
    assert watcher.entries[id].view.progress[0] == 1000
    # Between two resets only what is new was sent: the last messages are as small as the first.
    assert min(sizes[-5:]) <= 2 * min(sizes[1:6])


def test_thinning_keeps_what_it_showed() -> None:
    for length in range(1, 3000, 7):
        now, later = thinned(range(length)), thinned(range(length + 1))
        assert len(now) <= MOST_POINTS
        assert later[: len(now)] == now or later == now[::2] or later[:-1] == now[::2]


def test_strangers_numbers_and_texts_are_bounded() -> None:
    assert number(float("nan")) is number(float("inf")) is number("1") is number(True) is None
    assert number(0.5) == 0.5
    assert len(text("x" * 10**6)) == MOST_TEXT
    data = encoded(("rows", {"name": "a\n\nevent: forged\ndata: {}\u2028\udcff"}))
    assert data.count(b"\n") == 3  # of the event itself


@pytest.mark.parametrize("file", ["rounds.jsonl", "clients.jsonl", "config.toml"])
def test_damage_is_one_line_and_leaves_the_others_alone(
    file: str, finished: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    Federation(small(train__rounds=1), out=damaged).run()
    flipped(damaged / file)
    if file == "config.toml":
        (damaged / file).write_bytes(b"\xff[[[")
    watcher, id = watched(damaged, finished)
    rows = dict(Stream(watcher, id).changes())["rows"]["changed"]
    assert [row["state"] for row in rows] == ["unreadable", "finished"]
    assert dict(Stream(watcher, id).changes())["detail"]["problem"]


def test_half_a_line_that_is_not_committed_is_not_read(tmp_path: Path) -> None:
    Federation(small(train__rounds=1), out=tmp_path / "run").run()
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "accu')
    watcher, id = watched(tmp_path / "run")
    assert watcher.entries[id].state(0) == "finished"
    assert len(watcher.entries[id].view.points) == 2


@pytest.mark.parametrize(
    "forged",
    [
        {"accuracy": float("nan")},
        {"accuracy": "<b>"},
        {"seconds": {}},
        {"round": "x"},
        {"flops": []},
    ],
)
def test_forged_rows_do_no_harm(forged: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "run"
    Federation(small(train__rounds=1), out=out).run()
    (row,) = RunStore(out).rows("rounds.jsonl", RunStore(out).manifest())
    with_rows(out, "rounds.jsonl", [{**row, **forged}])
    watcher, id = watched(out)
    for event in Stream(watcher, id).changes():
        json.loads(encoded(event).split(b"data: ")[1])


def test_a_federation_is_watched_before_its_first_round(tmp_path: Path) -> None:
    federation = tmp_path / "federation"
    federation.mkdir()
    (federation / "federation.toml").write_text("")
    watcher, id = watched(federation)
    events = dict(Stream(watcher, id).changes())
    assert [row["state"] for row in events["rows"]["changed"]] == ["not begun"]
    assert events["detail"]["problem"] == ""
    assert events["detail"]["is_federation"]
    Federation(small(train__rounds=1), out=federation / "run").run()
    watcher.read_runs()
    events = dict(Stream(watcher, id).changes())
    assert [row["state"] for row in events["rows"]["changed"]] == ["finished"]


def test_a_warning_is_no_tile(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "warning_of", lambda _: "all predict one class only")
    watcher, id = watched(finished)
    detail = dict(Stream(watcher, id).changes())["detail"]
    assert detail["warning"] == "all predict one class only"
    assert "warning" not in dict(detail["tiles"])


def test_a_run_that_is_removed_disappears(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "run"
    Federation(small(train__rounds=1), out=out).run()
    watcher, id = watched(tmp_path / "runs")
    stream = Stream(watcher, id)
    stream.changes()
    out.rename(tmp_path / "elsewhere")
    watcher._look()
    assert dict(stream.changes())["rows"]["gone"] == [id]


def test_wrong_arguments_are_one_line() -> None:
    assert "is not a directory" in refused("watch", "nowhere")
    assert "is not a directory" in refused("watch")


def test_watching_continues_after_a_failure() -> None:
    """A page that no longer follows anything looks as if nothing happened."""
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise PermissionError("closed for a moment")
        if len(looks) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_every(0.0, look))
    assert looks == [0, 1, 2]


def test_no_run_has_so_many_rounds_that_a_browser_counts_for_ever(tmp_path: Path) -> None:
    Federation(small(train__rounds=1), out=tmp_path / "run").run()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 1\n", f"rounds = 1{'0' * 400}\n"))
    watcher, id = watched(tmp_path / "run")
    assert "train.rounds" in watcher.entries[id].view.problem
