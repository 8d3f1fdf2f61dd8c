"""Rendezvous: how the ranks of a job find each other where they share neither a folder nor a store of torch's."""

from __future__ import annotations

import base64
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Context, Here, Writer
from server.errors import TooManyValues, ValueTaken
from server.openapi import PROBLEMS
from server.store import rendezvous
from synth.errors import NotFoundError

router = APIRouter(prefix="/rendezvous", tags=["rendezvous"], route_class=JsonRoute, responses=PROBLEMS)

Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="seconds to wait for what is missing")]


@router.put("/{job}/{key}")
def put_value(
    job: schemas.RendezvousJob, key: schemas.Key, body: schemas.RendezvousValue, context: Here, caller: Writer
) -> schemas.RendezvousAnswer:
    """Leave a value for the other ranks of a job; it expires. The same value again does nothing, another is refused."""
    now, settings, value = time.time(), context.settings, base64.b64decode(body.value)
    with context.database.write() as connection:
        rendezvous.forget(connection, now=now)
        if rendezvous.count(connection, caller.name) >= settings.max_rendezvous:
            raise TooManyValues(
                f"token {caller.name}: has left {settings.max_rendezvous} values, the most that are kept; "
                f"each is forgotten after {settings.rendezvous_seconds:g} s",
                subject="job",
            )
        expires = now + settings.rendezvous_seconds
        kept = rendezvous.put(connection, caller.name, job, key, value, now=now, expires_at=expires)
    if kept != value:
        raise ValueTaken(
            f"{job}/{key}: has another value already; give each start of a job its own name", subject="job"
        )
    return schemas.RendezvousAnswer(seconds=settings.rendezvous_seconds)


@router.get("/{job}/{key}")
async def get_value(
    job: schemas.RendezvousJob, key: schemas.Key, context: Here, caller: Writer, wait: Wait = 0.0
) -> schemas.RendezvousValue:
    """One value, once it is there."""
    (value,) = await _collect(context, caller.name, job, [key], wait)
    if value is None:
        raise NotFoundError(f"{job}/{key}: nobody left a value here", subject="key")
    return schemas.RendezvousValue(value=value)


@router.get("/{job}")
async def get_values(
    job: schemas.RendezvousJob,
    context: Here,
    caller: Writer,
    name: Annotated[schemas.Key, Query(description="the keys are name:0, name:1, ...")],
    ranks: Annotated[int, Query(ge=1, le=65_536)],
    wait: Wait = 0.0,
) -> schemas.RendezvousValues:
    """The values of all ranks, once the last is there, or those that are there when the time is over."""
    keys = [f"{name}:{rank}" for rank in range(ranks)]
    return schemas.RendezvousValues(values=await _collect(context, caller.name, job, keys, wait))


async def _collect(context: Context, caller: str, job: str, keys: list[str], wait: float) -> list[str | None]:
    def look() -> tuple[Any, bool]:
        with context.database.read() as connection:
            found = rendezvous.get(connection, caller, job, keys, now=time.time())
        return found, None not in found

    what = ("rendezvous", caller, job, keys[0], len(keys))
    found = await context.lookout.wait(what, look, min(wait, context.settings.max_wait))
    encoded: list[str | None] = await run_in_threadpool(
        lambda: [None if value is None else base64.b64encode(value).decode() for value in found]
    )
    return encoded
