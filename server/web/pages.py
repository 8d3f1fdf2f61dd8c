"""The pages and what they show."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from server import auth, planning, problems
from server.api.operations import VERSION
from server.api.v1.schemas import Digest
from server.auth import COOKIE, Caller, Scope
from server.context import Here
from server.errors import RequestError, Unauthorized
from server.store import jobs, nodes, plans, topologies
from server.store.documents import unpack
from server.web.figures import topology_svg
from synth import topology
from synth.documents import Json
from synth.errors import NotFoundError, SynthError
from synth.units import format_bytes, format_rate, format_seconds

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SHOWN = 50
"""Rows of each table on the first page."""

STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


def _age(then: float) -> str:
    seconds = max(time.time() - then, 0.0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _or_nothing(write: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: "" if value is None else write(value)


_templates = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined)
_templates.filters |= {
    "age": _or_nothing(_age),
    "bytes": _or_nothing(format_bytes),
    "rate": _or_nothing(format_rate),
    "seconds": _or_nothing(format_seconds),
    "percent": _percent,
}


def page(name: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Render a page under the strict policy."""
    text = _templates.get_template(f"{name}.html").render(version=VERSION, **values)
    return HTMLResponse(text, status, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})


class PageRoute(APIRoute):
    """A route whose errors are pages too; without a token it leads to the page that asks for one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, around FastAPI's own."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Unauthorized:
                return RedirectResponse("/login", 303, headers={"Cache-Control": "no-store"})
            except SynthError as error:
                return page("error", status=problems.status_of(error), message=error.message)

        return handle


router = APIRouter(include_in_schema=False, route_class=PageRoute)

Visitor = Annotated[Caller, Depends(auth.require(Scope.PLAN_READ))]

PATHS: dict[str, Json] = {
    path: {"get": {}}
    for path in (
        "/",
        "/login",
        "/nodes/{name}",
        "/topologies/{name}",
        "/plans/{digest}",
        "/jobs/{id}",
        "/static/{name}",
    )
}
"""Templates of the pages, for metrics."""


@router.get("/")
def overview(context: Here, _: Visitor) -> Response:
    """Everything at a glance."""
    with context.database.read() as connection:
        return page(
            "overview",
            nodes=nodes.every(connection),
            topologies=topologies.every(connection, limit=SHOWN),
            plans=plans.every(connection, limit=SHOWN),
            jobs=[planning.job_document(job) for job in jobs.every(connection, state=None, limit=SHOWN)],
        )


@router.get("/nodes/{name}")
def node(name: str, context: Here, _: Visitor) -> Response:
    """What one node last reported."""
    with context.database.read() as connection:
        report = nodes.get(connection, name)
    if report is None:
        raise NotFoundError(f"node {name[:100]}: has not reported here", subject="name")
    machine = topology.from_document(json.loads(report.text))
    return page("node", report=report, machine=machine, picture=Markup(topology_svg(machine)))


@router.get("/topologies/{name}")
def one_topology(name: Digest, context: Here, _: Visitor) -> Response:
    """A cluster as a graph."""
    stored = planning.known_topology(context, name)
    machine = topology.from_document(json.loads(stored.text))
    return page("topology", stored=stored, machine=machine, picture=Markup(topology_svg(machine)))


@router.get("/plans/{digest}")
def one_plan(
    digest: Digest, context: Here, _: Visitor, bytes: Annotated[int | None, Query(ge=1, le=2**62)] = None
) -> Response:
    """A plan as a timeline, with its bound and what it beats."""
    with context.database.read() as connection:
        packed, made_for = plans.get(connection, digest), plans.topology_of(connection, digest)
        if packed is None or made_for is None:
            raise NotFoundError(f"plan {digest}: is not stored here", subject="digest")
    stored = planning.known_topology(context, made_for)
    drawn = context.perform("draw", {"plan": unpack(packed), "topology": stored.text, "bytes": bytes})
    picture, bars = (Markup(drawn.pop(name)) for name in ("picture", "bars"))
    return page("plan", digest=digest, stored=stored, drawn=drawn, picture=picture, bars=bars, asked=bytes)


@router.get("/jobs/{id}")
def one_job(id: str, context: Here, _: Visitor) -> Response:
    """A job, live while it runs."""
    with context.database.read() as connection:
        job = jobs.get(connection, id)
    if job is None:
        raise NotFoundError(f"job {id[:32]}: is not known here", subject="id")
    return page("job", job=planning.job_document(job), ended=job.state.ended)


@router.get("/login")
def ask_token() -> Response:
    """Ask for a token."""
    return page("login", message=None)


@router.post("/login")
async def take_token(request: Request) -> Response:
    """Keep the token in a cookie that scripts cannot read and other sites cannot send."""
    token = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
    tokens: auth.Tokens | None = request.app.state.tokens
    if tokens is None:
        raise RequestError("this server has no tokens", subject="token")
    if tokens.caller(token) is None:
        return page("login", status=401, message="This token is not known.")
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, max_age=43_200, httponly=True, samesite="strict", secure=secure)
    return response


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Style, script and icon."""
    if name not in STATIC:
        raise NotFoundError("there is no such file", subject="name")
    return FileResponse(HERE / "static" / name, media_type=STATIC[name], headers={"Cache-Control": "no-cache"})
