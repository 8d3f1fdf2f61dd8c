"""Reading JSON bodies: declared as JSON, and parsed by the one reader that refuses NaN and bottomless nesting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from server.errors import MediaTypeError
from synth import documents
from synth.documents import Json
from synth.errors import SynthError


class JsonRequest(Request):
    """A request whose body is parsed as synth reads documents."""

    async def json(self) -> Json:
        """The parsed body.

        Raises:
            DocumentError: it is no JSON, holds NaN, or is nested too deeply.
        """
        return await run_in_threadpool(documents.parse, await self.body(), subject="body#")


class JsonRoute(APIRoute):
    """A route whose bodies must be JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, around FastAPI's own."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if self.body_field is not None:
                _require_json(request)
            try:
                return await handler(JsonRequest(request.scope, request.receive))
            except HTTPException as error:
                if isinstance(error.__cause__, SynthError):  # FastAPI wraps whatever reading the body raises
                    raise error.__cause__ from None
                raise

        return handle


def _require_json(request: Request) -> None:
    """A page of another site can send a form, but not this header: it keeps such pages out."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaTypeError(
            f"body: is declared as {documents.shorten(kind) if kind else 'nothing'}; "
            "send the header 'Content-Type: application/json'",
            subject="Content-Type",
        )
