"""Resolve: which plan to use now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from server import planning
from server.api.v1 import schemas
from server.auth import Caller
from server.context import Context, Here, Reader
from server.errors import NoPlan
from server.jobs.request import SolveRequest, subject
from server.openapi import PROBLEMS
from server.responses import revalidated
from server.store import jobs, plans
from server.store.jobs import Job
from server.store.plans import Resolution
from server.store.topologies import Stored
from synth.errors import DemandError

router = APIRouter(tags=["plans"], responses=PROBLEMS)

RECHECK_SECONDS = 2.0
"""How often a waiting request asks the database, in case another server ends the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What resolve is asked, read and checked."""

    stored: Stored
    collective: str
    ranks: tuple[str, ...]
    bytes: int
    root: int | None
    pairs: tuple[tuple[int, int], ...]
    demand: str | None
    time_limit: float

    @property
    def subject(self) -> str:
        """What stored plans for it are known by."""
        return subject(
            topology=self.stored.digest,
            collective=self.collective,
            ranks=self.ranks,
            root=self.root,
            pairs=self.pairs,
            demand=self.demand,
        )


@router.get(
    "/resolve",
    response_class=Response,
    responses={
        200: {"model": schemas.ResolveAnswer, "description": "The plan to use now"},
        202: {"model": schemas.PlanPending, "description": "A job makes it; ask again, or with wait"},
        304: {"description": "The same as the answer whose ETag was sent"},
    },
)
async def resolve(
    request: Request,
    context: Here,
    caller: Reader,
    topology: Annotated[schemas.Digest, Query(description="fingerprint or digest")],
    collective: schemas.CollectiveName,
    bytes: Annotated[schemas.Size, Query(description="size of this call")],
    ranks: Annotated[str | None, Query(description="device ids in rank order, with commas; default every GPU")] = None,
    root: schemas.Rank | None = None,
    pairs: Annotated[str | None, Query(description="for sendrecv: FROM:TO,FROM:TO")] = None,
    demand: Annotated[schemas.Digest | None, Query(description="digest of an uneven alltoall's demand")] = None,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False, description="seconds to wait for a plan")] = 0.0,
    time_limit: Annotated[float, Query(gt=0, allow_inf_nan=False, description="of a job that is started")] = 10.0,
    start: Annotated[bool, Query(description="whether a job may be started when there is no plan")] = True,
) -> Response:
    """Which plan to use now for a topology, collective, ranks and size; may start a job and wait for it."""
    planning.check_seconds(time_limit, context.settings.max_seconds)

    def find() -> tuple[Resolution | Job, bool]:
        question = _question(
            context,
            topology=topology,
            collective=collective,
            ranks=ranks,
            size=bytes,
            root=root,
            pairs=pairs,
            demand=demand,
            time_limit=time_limit,
        )
        return _find_or_start(context, question, caller, start=start)

    found, exact = await run_in_threadpool(find)
    if isinstance(found, Job) and wait > 0:
        deadline = time.monotonic() + min(wait, context.settings.max_wait)
        found = await _wait(context, found, bytes, deadline)
        if not isinstance(found, Job):
            exact = True
    if isinstance(found, Job):
        pending = schemas.PlanPending(job=schemas.Job(**planning.job_document(found)))
        headers = {"Retry-After": "1", "Cache-Control": "no-store", "Location": f"/v1/jobs/{found.id}"}
        return JSONResponse(pending.model_dump(), status_code=202, headers=headers)
    answer = schemas.ResolveAnswer(**planning.resolution_document(found), exact=exact)
    return revalidated(request, answer.model_dump())


def _question(
    context: Context,
    *,
    topology: str,
    collective: str,
    ranks: str | None,
    size: int,
    root: int | None,
    pairs: str | None,
    demand: str | None,
    time_limit: float,
) -> Question:
    stored = planning.known_topology(context, topology)
    devices = stored.ranks if ranks is None else tuple(part.strip() for part in ranks.split(","))
    planning.places_of(stored, devices, most=context.settings.max_ranks)
    listed = _pairs(pairs)
    planning.check_question(collective, len(devices), size, root, listed)
    return Question(
        stored=stored,
        collective=collective,
        ranks=devices,
        bytes=size,
        root=root,
        pairs=listed,
        demand=demand,
        time_limit=time_limit,
    )


def _pairs(text: str | None) -> tuple[tuple[int, int], ...]:
    pairs = []
    for entry in (text or "").split(",") if text else []:
        src, _, dst = entry.partition(":")
        if not (src.isascii() and src.isdecimal() and dst.isascii() and dst.isdecimal()) or len(entry) > 20:
            raise DemandError("pairs: write FROM:TO,FROM:TO with ranks", subject="pairs")
        pairs.append((int(src), int(dst)))
    return tuple(pairs)


def _find_or_start(
    context: Context, question: Question, caller: Caller, *, start: bool
) -> tuple[Resolution | Job, bool]:
    """A plan for exactly this range; else a job that makes one; else, where none may start, the nearest plan."""
    with context.database.read() as connection:
        nearest = plans.nearest(connection, question.subject, question.bytes)
        if nearest is not None and (nearest[1] or not start):
            return nearest
        coming = jobs.active_about(connection, question.subject, question.bytes)
    if coming is not None:
        return coming, True
    if question.demand is not None:
        raise NoPlan(
            "no plan for this demand; POST the demand itself to /v1/plans, resolve knows only its digest",
            subject="demand",
        )
    if not start:
        raise NoPlan("no plan for this request, and start=false asks not to make one", subject="start")
    try:
        return planning.order(context, _order(question), caller, retry=False), True
    except NoPlan:
        if nearest is None:
            raise
        return nearest


def _order(question: Question) -> SolveRequest:
    size, least, most = planning.bucket(question.bytes)
    place = dict(question.stored.places)
    return SolveRequest(
        topology=question.stored.digest,
        fingerprint=question.stored.fingerprint,
        places=tuple(place[id] for id in question.ranks),
        collective=question.collective,
        ranks=question.ranks,
        bytes=size,
        min_bytes=least,
        max_bytes=most,
        root=question.root,
        pairs=question.pairs,
        time_limit=question.time_limit,
    )


async def _wait(context: Context, job: Job, size: int, deadline: float) -> Resolution | Job:
    """Wait for a job until it ends, the deadline passes or the server is about to stop."""

    def look(id: str) -> Resolution | Job:
        with context.database.read() as connection:
            now = jobs.get(connection, id)
        assert now is not None
        return planning.answer_of(context, now, size)

    current: Resolution | Job = job
    async with context.waiting():
        while isinstance(current, Job) and not context.draining:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            pause = RECHECK_SECONDS * (1 + context.endings.waiting(job.id) / 100)  # many ask, the database is one
            await context.endings.wait(job.id, min(left, pause))
            current = await run_in_threadpool(look, job.id)
    return current
