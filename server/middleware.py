"""What happens around every request: an id, a size limit on the body, safe headers, and the count of it."""

from __future__ import annotations

import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import problems
from server.errors import BodyTooLarge
from server.metrics import Metrics
from server.paths import Paths

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""On every response that does not set its own."""


class Around:
    """ASGI middleware for all of it.

    Args:
        app: what answers.
        metrics: what to count.
        paths: templates to count by.
        max_body_bytes: largest body.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Paths, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths
        self._limit = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        started, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                outgoing = MutableHeaders(scope=message)
                outgoing["X-Request-Id"] = request_id
                for name, value in HEADERS.items():
                    outgoing.setdefault(name, value)
            await send(message)

        self._metrics.in_progress.inc()
        try:
            declared = headers.get("content-length", "0")
            if declared.isdecimal() and int(declared) > self._limit:
                response = problems.of(Request(scope), self._too_large())
                response.headers["Connection"] = "close"  # the body is not read
                await response(scope, receive, answer)
            else:
                await self._app(scope, self._counted(receive), answer)
        finally:
            self._metrics.in_progress.dec()
            route = self._paths.template(scope["path"]) or "none"  # few values, whatever is asked
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.request_seconds.labels(method, route).observe(time.perf_counter() - started)

    def _counted(self, receive: Receive) -> Receive:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"body: is larger than {self._limit} bytes, the most that is accepted", subject="body")


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
