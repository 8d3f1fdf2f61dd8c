"""What an operator's tools ask: is it alive, is it ready, what does it measure, which version is it."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy import text

from server.auth import Scope, check
from server.context import Here
from synth.errors import ServiceUnavailable

VERSION = version("synth")

router = APIRouter(tags=["operations"])


class Alive(BaseModel):
    """The process answers."""

    alive: bool


class Ready(BaseModel):
    """It can do its work."""

    ready: bool


class Version(BaseModel):
    """What is running."""

    synth: str
    api: str


@router.get("/livez")
async def livez() -> Alive:
    """Whether the process answers; restart it when it does not."""
    return Alive(alive=True)


@router.get("/readyz")
def readyz(context: Here) -> Ready:
    """Whether requests should be sent here: the database answers and the server is not about to stop."""
    if context.draining:
        raise ServiceUnavailable("the server is stopping; ask another", subject="draining")
    with context.database.read() as connection:
        connection.execute(text("SELECT 1"))
    return Ready(ready=True)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request, context: Here) -> Response:
    """Metrics for Prometheus."""
    if context.settings.metrics_token:
        check(request, Scope.PLAN_READ)
    return Response(context.metrics.scrape(context.database), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/version")
async def version_() -> Version:
    """Which version of synth this is."""
    return Version(synth=VERSION, api="v1")
