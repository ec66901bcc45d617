"""The web application: one page, its style and script, and its events, for one user."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from pfedes.watch.stream import Stream, encoded
from pfedes.watch.token_guard import TokenGuard
from pfedes.watch.watcher import Watcher

log = logging.getLogger(__name__)

READING = 1.0  # seconds between looks at the run directories
ASKING = 10.0  # seconds between questions to a coordinator's server
TICK = 0.5  # seconds between looks of a connection
ALIVE = 20  # ticks after which an idle connection shows that it is alive
MOST_CONNECTIONS = 32


def make_app(watcher: Watcher, token: str, port: int) -> ASGIApp:
    """The application, which reads what is watched for as long as it runs."""

    @asynccontextmanager
    async def reading(app: Starlette) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(_every(READING, watcher.read_runs)),
            asyncio.create_task(_every(ASKING, watcher.ask_federations)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    connections = asyncio.Semaphore(MOST_CONNECTIONS)

    async def events(request: Request) -> Response:
        if connections.locked():
            return PlainTextResponse("Too many pages are open.\n", 503)
        stream = Stream(watcher, request.query_params.get("run", ""))
        return StreamingResponse(_events(stream, connections), media_type="text/event-stream")

    routes = [
        Route("/{token}/", _file("page.html", "text/html"), methods=["GET"]),
        Route("/{token}/watch.css", _style, methods=["GET"]),
        Route("/{token}/watch.js", _file("watch.js", "text/javascript"), methods=["GET"]),
        Route("/{token}/events", events, methods=["GET"]),
    ]
    return TokenGuard(Starlette(routes=routes, lifespan=reading), token, port)


async def _events(stream: Stream, connections: asyncio.Semaphore) -> AsyncIterator[bytes]:
    async with connections:
        idle = 0
        while True:
            changes = await asyncio.to_thread(stream.changes)
            idle = 0 if changes else idle + 1
            if changes:
                yield b"".join(map(encoded, changes))
            elif idle % ALIVE == 0:
                yield b": alive\n\n"
            await asyncio.sleep(TICK)


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        try:
            await asyncio.to_thread(work)
        except Exception:  # of one look: a directory may be closed to us for a moment
            log.debug("a look at what is watched failed", exc_info=True)
        await asyncio.sleep(seconds)


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return Response(_part("pfedes.watch", name), media_type=media_type)

    return answer


def _style(request: Request) -> Response:
    style = _part("pfedes.report", "style.css") + _part("pfedes.watch", "watch.css")
    return Response(style, media_type="text/css")


def _part(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
