"""The web application: one page, its style and script, and its events, for one user.

Programs that can reach the port are not trusted. A request is answered only if its address has the
token, if it was sent to this very host (a foreign name may have been made to point here) and if no
page of another origin made it.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pfedes.watch.stream import Stream, encoded
from pfedes.watch.watcher import Watcher

log = logging.getLogger(__name__)

READING = 1.0  # seconds between looks at the run directories
ASKING = 10.0  # seconds between questions to a coordinator's server
TICK = 0.5  # seconds between looks of a connection
ALIVE = 20  # ticks after which an idle connection shows that it is alive
MOST_CONNECTIONS = 32

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address has the token in it
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class TokenGuard:
    """Refuses every request that is not the user's own, before anything else looks at it."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":

            async def with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *extra]}
                await send(message)

            refusal = self._refusal(Request(scope))
            await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("This is not the host that was asked for.\n", 421)
        origin = request.headers.get("origin", f"http://{host}")
        site = request.headers.get("sec-fetch-site", "none")
        if origin != f"http://{host}" or site not in ("none", "same-origin"):
            return PlainTextResponse("Pages of other origins are refused.\n", 403)
        given = request.url.path.split("/")[1].encode(errors="replace")
        if not secrets.compare_digest(given, self._token):
            return PlainTextResponse(
                "Open the whole address that 'pfedes watch' printed: it has a token in it.\n", 403
            )
        return None


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
