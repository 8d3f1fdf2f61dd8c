"""Jobs: the row is the truth about a solve. Whoever holds its lease works on it; an expired lease is taken over.

States: ``queued`` -> ``running`` -> ``done`` | ``failed`` | ``cancelled``. Every change of a running job names the
owner and the attempt, so a server that lost its lease can no longer change anything: a job finishes once.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, or_, select, update

from server.store.documents import insert_new
from server.store.tables import jobs
from synth.documents import Json


class State(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    """Waits for a free solver."""
    RUNNING = "running"
    """Some server holds its lease and solves it."""
    DONE = "done"
    """Its plan is stored."""
    FAILED = "failed"
    """It ended with an error that is stored."""
    CANCELLED = "cancelled"
    """Somebody asked to stop it, and it was stopped."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as its row says.

    Attributes:
        id: random, in the URL.
        key: digest of the request.
        state: where it is.
        attempt: how often it was started.
        owner: the server that holds the lease.
        cancel: whether somebody asked to stop it.
        caller: name of the token that asked first.
        request: what to solve, JSON.
        progress: {incumbent_seconds?, bound_seconds?, gap?} so far.
        plan: digest of the result.
        error: {code, message, subject} of a failure.
        created_at: seconds since 1970, as are the following.
        started_at: of the latest attempt.
        finished_at: when it ended.
        heartbeat_at: when its owner last showed life.
    """

    id: str
    key: str
    state: State
    attempt: int
    owner: str | None
    cancel: bool
    caller: str
    request: Json
    progress: Json | None
    plan: str | None
    error: Json | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    heartbeat_at: float | None


def add(
    connection: Connection,
    *,
    key: str,
    subject: str,
    min_bytes: int,
    max_bytes: int,
    request: Json,
    caller: str,
    now: float,
) -> Job:
    """Queue a request, or join the unfinished job that already solves it."""
    while True:
        row = connection.execute(select(jobs).where(jobs.c.active_key == key)).one_or_none()
        if row is not None:
            return _job(row)
        values = {
            "id": secrets.token_hex(8),
            "key": key,
            "active_key": key,
            "subject": subject,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "state": State.QUEUED,
            "attempt": 0,
            "cancel": 0,
            "caller": caller,
            "request": json.dumps(request),
            "created_at": now,
        }
        insert_new(connection, jobs, values)  # another replica may have been faster: then its job is found above


def get(connection: Connection, id: str) -> Job | None:
    """One job, or None."""
    row = connection.execute(select(jobs).where(jobs.c.id == id)).one_or_none()
    return None if row is None else _job(row)


def active(connection: Connection, key: str) -> Job | None:
    """The unfinished job for a request, or None."""
    row = connection.execute(select(jobs).where(jobs.c.active_key == key)).one_or_none()
    return None if row is None else _job(row)


def active_about(connection: Connection, subject: str, size: int) -> Job | None:
    """The oldest unfinished job whose plan will answer this size, or None."""
    c = jobs.c
    holds = and_(c.active_key.is_not(None), c.subject == subject, c.min_bytes <= size, c.max_bytes >= size)
    row = connection.execute(select(jobs).where(holds).order_by(c.created_at, c.id).limit(1)).one_or_none()
    return None if row is None else _job(row)


def latest(connection: Connection, key: str) -> Job | None:
    """The job for a request that ended last, or None."""
    query = select(jobs).where(jobs.c.key == key, jobs.c.finished_at.is_not(None))
    row = connection.execute(query.order_by(jobs.c.finished_at.desc()).limit(1)).one_or_none()
    return None if row is None else _job(row)


def every(connection: Connection, *, state: State | None, limit: int) -> list[Job]:
    """The newest jobs."""
    query = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
    return [_job(row) for row in connection.execute(query if state is None else query.where(jobs.c.state == state))]


def counts(connection: Connection) -> dict[State, int]:
    """How many jobs are in each state."""
    rows = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
    return dict.fromkeys(State, 0) | {State(state): number for state, number in rows}


def unfinished(connection: Connection, caller: str | None = None) -> int:
    """How many jobs wait or run; with a caller, only theirs."""
    query = select(func.count()).select_from(jobs).where(jobs.c.active_key.is_not(None))
    return connection.execute(query if caller is None else query.where(jobs.c.caller == caller)).scalar_one()


def oldest_queued(connection: Connection) -> float | None:
    """When the job that has waited longest was created."""
    query = select(func.min(jobs.c.created_at)).where(jobs.c.state == State.QUEUED)
    return connection.execute(query).scalar_one_or_none()


def claim(connection: Connection, *, owner: str, lease_seconds: float, now: float) -> Job | None:
    """Take the lease of the next job: one that waits, or one whose owner was silent for too long."""
    free = or_(jobs.c.state == State.QUEUED, and_(jobs.c.state == State.RUNNING, jobs.c.lease_until < now))
    query = select(jobs.c.id).where(free).order_by(jobs.c.created_at, jobs.c.id).limit(1)
    id = connection.execute(query.with_for_update(skip_locked=True)).scalar_one_or_none()
    if id is None:
        return None
    values = {
        "state": State.RUNNING,
        "attempt": jobs.c.attempt + 1,
        "owner": owner,
        "lease_until": now + lease_seconds,
        "heartbeat_at": now,
        "started_at": now,
        "progress": None,
    }
    connection.execute(update(jobs).where(jobs.c.id == id).values(**values))
    return get(connection, id)


def heartbeat(connection: Connection, job: Job, *, progress: Json | None, lease_seconds: float, now: float) -> bool:
    """Renew a lease and store the progress.

    Returns:
        whether to go on: False when the lease was lost or somebody asked to stop.
    """
    values: dict[str, Any] = {"lease_until": now + lease_seconds, "heartbeat_at": now}
    if progress is not None:
        values["progress"] = json.dumps(progress)
    held = connection.execute(update(jobs).where(_held(job), jobs.c.cancel == 0).values(**values)).rowcount
    return held == 1


def finish(
    connection: Connection, job: Job, state: State, *, now: float, plan: str | None = None, error: Json | None = None
) -> bool:
    """End a job that this owner still holds; returns whether it did."""
    values: dict[str, Any] = {"state": state, "active_key": None, "lease_until": None, "finished_at": now, "plan": plan}
    values["error"] = None if error is None else json.dumps(error)
    return connection.execute(update(jobs).where(_held(job)).values(**values)).rowcount == 1


def release(connection: Connection, job: Job, *, refund: bool) -> bool:
    """Give a lease back so that somebody else solves the job; ``refund`` when this attempt should not count."""
    values = {
        "state": State.QUEUED,
        "owner": None,
        "lease_until": None,
        "attempt": job.attempt - 1 if refund else job.attempt,
    }
    return connection.execute(update(jobs).where(_held(job)).values(**values)).rowcount == 1


def cancel(connection: Connection, id: str, *, now: float) -> None:
    """Ask to stop a job: at once when it waits, at its owner's next heartbeat when it runs."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == id, jobs.c.state == State.QUEUED)
        .values(state=State.CANCELLED, active_key=None, finished_at=now, cancel=1)
    )
    connection.execute(update(jobs).where(jobs.c.id == id, jobs.c.state == State.RUNNING).values(cancel=1))


def forget(connection: Connection, *, before: float) -> int:
    """Remove jobs that ended before a moment; what they made stays. Returns how many."""
    return connection.execute(delete(jobs).where(jobs.c.finished_at < before)).rowcount


def _held(job: Job) -> ColumnElement[bool]:
    return and_(
        jobs.c.id == job.id,
        jobs.c.state == State.RUNNING,
        jobs.c.owner == job.owner,
        jobs.c.attempt == job.attempt,
    )


def _job(row: Row[tuple[object, ...]]) -> Job:
    values = {name: row._mapping[name] for name in Job.__slots__}
    for name in ("request", "progress", "error"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return Job(**values | {"state": State(values["state"]), "cancel": bool(values["cancel"])})
