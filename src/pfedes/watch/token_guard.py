"""Who may see the page: whoever has the token.

Programs that can reach the port are not trusted. A request is answered only if its address has the
token, if it was sent to this very host (a foreign name may have been made to point here) and if no
page of another origin made it.
"""

import secrets

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
