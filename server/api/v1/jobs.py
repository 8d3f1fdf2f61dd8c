"""Jobs: how far a solve is, and stopping it."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from server import planning
from server.api.v1 import schemas
from server.context import Here, Reader, Writer
from server.openapi import PROBLEMS
from server.store import jobs
from server.store.jobs import Job, State
from synth.errors import NotFoundError

router = APIRouter(prefix="/jobs", tags=["jobs"], responses=PROBLEMS)

Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


@router.get("")
def list_jobs(
    context: Here,
    _: Reader,
    state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> schemas.Jobs:
    """The newest jobs."""
    with context.database.read() as connection:
        found = jobs.every(connection, state=None if state is None else State(state), limit=limit)
    return schemas.Jobs(jobs=[_answer(job) for job in found])


@router.get("/{id}")
def get_job(id: Id, context: Here, _: Reader) -> schemas.Job:
    """One job."""
    with context.database.read() as connection:
        job = jobs.get(connection, id)
    return _answer(_known(job, id))


@router.delete("/{id}", status_code=202)
def cancel_job(id: Id, context: Here, _: Writer) -> schemas.Job:
    """Stop a job: at once when it waits, within a second when it runs. A job that ended stays as it is."""
    with context.database.write() as connection:
        _known(jobs.get(connection, id), id)
        jobs.cancel(connection, id, now=time.time())
        job = _known(jobs.get(connection, id), id)
    context.endings.note(id)
    return _answer(job)


def _known(job: Job | None, id: str) -> Job:
    if job is None:
        raise NotFoundError(f"job {id}: is not known here", subject="id")
    return job


def _answer(job: Job) -> schemas.Job:
    return schemas.Job(**planning.job_document(job))
