"""What one open page has been sent, and what it must be sent next: only what has changed.

Nothing is queued. A page that was asleep gets the present state next, not everything in between.
"""

import json
import time
from typing import Any

from pfedes.version import __version__
from pfedes.watch.bounded import text
from pfedes.watch.coordinator import COLUMNS as FEDERATION_COLUMNS
from pfedes.watch.view import COLUMNS, Point
from pfedes.watch.watcher import WatchedEntry, Watcher

Event = tuple[str, Any]


class Stream:
    """One connection: the overview, and one chosen run in full."""

    def __init__(self, watcher: Watcher, chosen: str = "") -> None:
        self._watcher = watcher
        self._chosen = chosen
        self._greeted = False
        self._rows: dict[str, Any] = {}
        self._detail: Any = None
        self._points: tuple[Point, ...] | None = None
        self._work = ""

    def changes(self) -> list[Event]:
        """The events that bring the page up to date."""
        events: list[Event] = [] if self._greeted else [("hello", self._hello())]
        self._greeted = True
        now = time.time()
        entries = dict(self._watcher.entries)
        rows = {id: _row(entry, now) for id, entry in entries.items()}
        changed = [row for id, row in rows.items() if self._rows.get(id) != row]
        gone = sorted(self._rows.keys() - rows.keys())
        if changed or gone or len(events) == 1:
            left_out = self._watcher.left_out
            events.append(("rows", {"changed": changed, "gone": gone, "left_out": left_out}))
        self._rows = rows
        entry = entries.get(self._chosen)
        if entry is not None:
            events += self._of_chosen(entry, rows[entry.id]["state"])
        return events

    def _hello(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "columns": COLUMNS,
            "federation_columns": FEDERATION_COLUMNS,
            "directories": [text(directory) for directory in self._watcher.directories],
        }

    def _of_chosen(self, entry: WatchedEntry, state: str) -> list[Event]:
        events: list[Event] = []
        view, people = entry.view, entry.people
        detail = {
            "id": entry.id,
            "name": entry.name,
            "state": state,
            "problem": view.problem,
            "warning": view.warning,
            "progress": view.progress,
            "tiles": view.tiles,
            "clients": view.clients,
            "more_clients": view.more_clients,
            "troubles": view.troubles,
            "facts": view.facts,
            "is_federation": entry.federation is not None,
            "people": people.people if people is not None else (),
            "server": people.server if people is not None else "",
            "warnings": people.warnings if people is not None else (),
        }
        if detail != self._detail:
            self._detail = detail
            events.append(("detail", detail))
        if view.points != self._points:
            events.append(("points", self._new_points(view.points)))
        if (work := self._watcher.under_way(entry.id)) != self._work:
            self._work = work
            events.append(("work", {"text": work}))
        return events

    def _new_points(self, points: tuple[Point, ...]) -> dict[str, Any]:
        """Those at the end, or all of them if the run went back or they were thinned out."""
        before, self._points = self._points, points
        if before is not None and points[: len(before)] == before:
            return {"reset": False, "points": points[len(before) :]}
        return {"reset": True, "points": points}


def encoded(event: Event) -> bytes:
    """A server-sent event. ASCII without line ends: nothing in the data can begin another."""
    name, data = event
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode("ascii")


def _row(entry: WatchedEntry, now: float) -> dict[str, Any]:
    state = entry.state(now)
    name = f"{entry.name} (federation)" if entry.federation is not None else entry.name
    return {
        "id": entry.id,
        "state": state,
        "progress": entry.view.progress,
        "cells": [(name, name), (state, state), *entry.view.cells],
    }
