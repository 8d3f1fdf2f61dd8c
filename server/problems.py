"""Errors as RFC 9457 problem documents; one table maps the exception tree to HTTP status."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from server import errors as service
from synth import errors as tree
from synth.errors import SynthError

log = logging.getLogger("synth.server")

STATUS: Mapping[type[SynthError], int] = {
    service.BodyTooLarge: 413,
    service.QueueFull: 429,
    service.TooManyJobs: 429,
    service.TooManyValues: 429,
    service.ValueTaken: 409,
    service.MediaTypeError: 415,
    service.HostError: 421,
    service.Unauthorized: 401,
    service.Forbidden: 403,
    service.StorageFull: 507,
    service.StorageUnavailable: 503,
    service.SolverTimeout: 504,
    tree.DocumentError: 400,
    tree.LimitError: 422,
    tree.NotFoundError: 404,
    service.RequestError: 422,
    tree.InputError: 422,
    tree.InvalidPlan: 422,
    tree.Infeasible: 422,
    tree.SolveError: 500,
    tree.ServiceUnavailable: 503,
    tree.ServiceError: 502,
    tree.RuntimeFault: 500,
    tree.SynthError: 500,
}
"""The nearest ancestor of an error decides its status."""

RETRY_SECONDS: Mapping[int, int] = {429: 5, 503: 2, 507: 30}
"""``Retry-After`` of the statuses that pass by themselves."""

_HTTP_CODES: Mapping[int, tuple[str, str]] = {
    404: ("path", "No such path"),
    405: ("method", "The path does not have this method"),
}
"""Codes of what the framework refuses before any of our code runs."""

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="urn:synth:problem: and the code", examples=["urn:synth:problem:demand"])
    title: str = Field(description="what kind of problem it is")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="one sentence: what is wrong and what would be right")
    code: str = Field(description="stable, for programs; docs/errors.md lists all")
    pointer: str | None = Field(None, description="JSON pointer into the body, or the parameter's name")
    request_id: str = Field(description="also in X-Request-Id and in the log")


def status_of(error: SynthError | type[SynthError]) -> int:
    """The HTTP status of an error, from its nearest ancestor in the table."""
    kind = error if isinstance(error, type) else type(error)
    return next(STATUS[ancestor] for ancestor in kind.__mro__ if ancestor in STATUS)


def problem(
    request: Request, *, status: int, code: str, title: str, detail: str, pointer: str | None = None
) -> JSONResponse:
    """Build the response for a problem."""
    metrics = getattr(request.app.state, "metrics", None)
    if metrics is not None:
        metrics.problems.labels(code).inc()
    document = Problem(
        type=f"urn:synth:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        code=code,
        pointer=pointer,
        request_id=getattr(request.state, "request_id", ""),
    )
    headers = {"Cache-Control": "no-store"}
    if status in RETRY_SECONDS:
        headers["Retry-After"] = str(RETRY_SECONDS[status])
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="synth"'
    return JSONResponse(
        document.model_dump(exclude_none=True), status_code=status, headers=headers, media_type=MEDIA_TYPE
    )


def of(request: Request, error: SynthError) -> JSONResponse:
    """The response for an error of the tree."""
    status = status_of(error)
    if status >= 500:
        log.error("%s: %s", getattr(request.state, "request_id", ""), error.message)
    return problem(
        request,
        status=status,
        code=error.code,
        title=title_of(type(error)),
        detail=error.message,
        pointer=pointer_of(error),
    )


def title_of(kind: type[SynthError]) -> str:
    """The first line of the class's docstring, without its full stop."""
    return (kind.__doc__ or kind.__name__).splitlines()[0].rstrip(".")


_POINTER = re.compile(r"[^#]*#(/.*)?")


def pointer_of(error: SynthError) -> str | None:
    """What the error's subject says about where in the request the fault is."""
    if error.subject is None:
        return None
    match = _POINTER.fullmatch(error.subject)
    return f"#{match[1] or ''}" if match else error.subject


def install(app: FastAPI) -> None:
    """Answer every failure of this application with a problem document."""
    app.add_exception_handler(SynthError, _synth)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RecursionError, _recursion)
    app.add_exception_handler(Exception, _unexpected)


def _synth(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SynthError)
    return of(request, error)


def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first: Any = error.errors()[0]
    source, *path = first["loc"]
    where = "#" + "".join(f"/{part}" for part in path) if source == "body" else ".".join(map(str, path))
    more = len(error.errors()) - 1
    detail = f"{source} {where}: {first['msg']}" + (f" (and {more} more)" if more else "")
    return problem(
        request,
        status=422,
        code=service.RequestError.code,
        title=title_of(service.RequestError),
        detail=jsonable_encoder(detail),
        pointer=where,
    )


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code, title = _HTTP_CODES.get(error.status_code, ("request", "The request cannot be served"))
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    response = problem(request, status=error.status_code, code=code, title=title, detail=detail)
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(request.app.state.paths.methods(request.url.path))
    return response


def _recursion(request: Request, _: Exception) -> JSONResponse:
    return of(request, tree.DocumentError("body#: is nested too deeply to be a synth document", subject="body#"))


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("%s: unexpected error", getattr(request.state, "request_id", ""), exc_info=error)
    return problem(
        request,
        status=500,
        code="internal",
        title="An error nobody expected",
        detail="the server failed; its log has the details under this request id",
    )
