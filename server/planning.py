"""From what a caller asks to a plan that is there, or to the job that will make it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from server.auth import Caller, Scope
from server.context import Context
from server.errors import NoPlan, QueueFull, TooManyJobs, TooManyRanks, TooManySeconds
from server.jobs.process import error_from
from server.jobs.request import SolveRequest
from server.store import jobs, plans, topologies
from server.store.jobs import Job, State
from server.store.plans import Resolution
from server.store.topologies import Stored
from synth.collective import Demand, parse_collective
from synth.documents import Json, shorten
from synth.errors import DemandError, InputError, NotFoundError, SolveError
from synth.plan.ir import MAX_BYTES
from synth.topology.model import abridge

SMALLEST = 1024
"""Sizes up to this share one plan."""
KEPT_TOPOLOGIES = 64
"""Topologies in memory."""
REMEMBERED_SECONDS = 60.0
"""A request whose solve failed is not tried again by resolve so long; one that cannot succeed, never."""


def known_topology(context: Context, name: str) -> Stored:
    """The topology of this digest or fingerprint.

    Neither a document nor which one is the oldest of its shape ever changes, so those asked for often stay in memory.

    Raises:
        NotFoundError: nobody knows it.
    """
    kept = context.topologies.get(name)
    if kept is not None:
        return kept
    with context.database.read() as connection:
        stored = topologies.find(connection, name)
    if stored is None:
        raise NotFoundError(
            f"topology {shorten(name, 70)}: is not stored here; POST it to /v1/topologies first", subject="topology"
        )
    if len(context.topologies) >= KEPT_TOPOLOGIES:
        context.topologies.clear()
    context.topologies[name] = stored
    return stored


def places_of(stored: Stored, ranks: Sequence[str], *, most: int) -> tuple[int, ...]:
    """Canonical place of each rank's device.

    Raises:
        TooManyRanks: more than accepted.
        DemandError: a rank is no GPU of the topology or stands twice.
    """
    if len(ranks) > most:
        raise TooManyRanks(f"ranks: {len(ranks)} of them; at most {most} are accepted", subject="#/ranks")
    place = dict(stored.places)
    for position, id in enumerate(ranks):
        if id not in place:
            raise DemandError(
                f"#/ranks/{position}: {shorten(id)} is no GPU of topology {stored.name}; it has "
                f"{abridge(stored.ranks)}",
                subject=f"#/ranks/{position}",
            )
    if len(set(ranks)) != len(ranks):
        raise DemandError("#/ranks: names a device twice; each rank needs its own", subject="#/ranks")
    return tuple(place[id] for id in ranks)


def check_seconds(seconds: float, most: float) -> None:
    """Refuse a longer solve than accepted.

    Raises:
        TooManySeconds: it is.
    """
    if seconds > most:
        raise TooManySeconds(f"time_limit: is {seconds:g} s; at most {most:g} s are accepted", subject="#/time_limit")


def known_strategies(names: Sequence[str] | None, *, exact: bool) -> tuple[str, ...] | None:
    """The strategies to try.

    Raises:
        DemandError: one is not known, or an exact schedule was asked for too.
    """
    if names is None:
        return None
    from solver import portfolio

    if exact:
        raise DemandError("#/strategies: do not go with exact, which is one of its own", subject="#/strategies")
    for position, name in enumerate(names):
        if name not in portfolio.names():
            raise DemandError(
                f"#/strategies/{position}: {shorten(name)} is not known; must be one of {', '.join(portfolio.names())}",
                subject=f"#/strategies/{position}",
            )
    return tuple(names)


def bucket(size: int) -> tuple[int, int, int]:
    """(bytes, min, max) of the plan that resolve orders for a size: one per power of two.

    >>> bucket(1_000_000)
    (1048576, 524289, 1048576)
    >>> bucket(7)
    (1024, 0, 1024)
    """
    if size <= SMALLEST:
        return SMALLEST, 0, SMALLEST
    top = min(1 << (size - 1).bit_length(), MAX_BYTES)
    return top, top // 2 + 1, top


def around(size: int) -> tuple[int, int]:
    """(min, max) of the sizes that a plan made for one size answers: from half to twice of it."""
    return size // 2, min(size * 2, MAX_BYTES)


def order(context: Context, request: SolveRequest, caller: Caller, *, retry: bool) -> Resolution | Job:
    """The stored answer to a request, or the job that makes it, started if need be.

    Args:
        context: of the server.
        request: complete and checked.
        caller: who asks.
        retry: whether to try again at once what failed for a reason that may have passed.

    Raises:
        QueueFull, TooManyJobs: a new job would be one too many.
        SynthError: what the last job failed with, where it is not tried again.
    """
    request.to_demand()  # its parts fit together
    settings, now = context.settings, time.time()
    with context.database.write() as connection:
        known = plans.resolution(connection, request.key)
        if known is not None:
            return known
        if (running := jobs.active(connection, request.key)) is not None:
            return running
        last = jobs.latest(connection, request.key)
        if last is not None and last.state is State.FAILED:
            _raise_again(last, now, retry=retry)
        if Scope.PLAN_WRITE not in caller.scopes:
            raise NoPlan(
                f"no plan for this request yet, and token {caller.name} may not start a job (scope plan:write)",
                subject="plan:write",
            )
        if jobs.unfinished(connection) >= settings.max_queue + settings.workers:
            raise QueueFull(f"queue: {settings.max_queue} jobs wait already; try again later", subject="queue")
        if jobs.unfinished(connection, caller.name) >= settings.max_jobs_per_token:
            raise TooManyJobs(
                f"token {caller.name}: has {settings.max_jobs_per_token} unfinished jobs already; wait for one of them",
                subject=caller.name,
            )
        job = jobs.add(
            connection,
            key=request.key,
            subject=request.subject,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            request=request.to_document(),
            caller=caller.name,
            now=now,
        )
    context.runner.notify()
    return job


def pages(context: Context, request: SolveRequest) -> list[Resolution]:
    """The plans of a book that is there, in order of size."""
    found: list[Resolution] = []
    with context.database.read() as connection:
        while (page := plans.resolution(connection, request.page_key(len(found)))) is not None:
            found.append(page)
    return found


def answer_of(context: Context, job: Job, size: int) -> Resolution | Job:
    """What a job came to: the plan for a size, or the job itself while it runs.

    Raises:
        SynthError: what it failed with.
    """
    raise_failure(job)
    if not job.state.ended:
        return job
    request = SolveRequest.from_document(job.request)
    with context.database.read() as connection:
        if request.book:
            nearest = plans.nearest(connection, request.subject, size)
            return job if nearest is None else nearest[0]
        return plans.resolution(connection, request.key) or job


def _raise_again(job: Job, now: float, *, retry: bool) -> None:
    """Raise the error of a failed job, unless another try may end otherwise."""
    assert job.error is not None
    error = error_from(job.error)
    lasting = isinstance(error, InputError) or error.code == "infeasible"
    if lasting or (not retry and now - (job.finished_at or 0.0) < REMEMBERED_SECONDS):
        raise error


def check_question(
    collective: str, ranks: int, size: int, root: int | None, pairs: tuple[tuple[int, int], ...]
) -> None:
    """Refuse what no plan can answer.

    Raises:
        DemandError: the parts do not fit together.
    """
    Demand(collective=parse_collective(collective), ranks=ranks, bytes=size, root=root, pairs=pairs)


def raise_failure(job: Job) -> None:
    """Raise what a job failed with, if it did.

    Raises:
        SynthError: the job's own error.
        SolveError: it was cancelled.
    """
    if job.state is State.FAILED:
        assert job.error is not None
        raise error_from(job.error)
    if job.state is State.CANCELLED:
        raise SolveError(f"job {job.id}: was cancelled before it had a plan", subject=job.id)


def job_document(job: Job) -> Json:
    """A job as the API shows it."""
    error = None if job.error is None else {key: job.error[key] for key in ("code", "message", "subject")}
    return {
        "id": job.id,
        "state": job.state.value,
        "attempt": job.attempt,
        "collective": job.request["collective"],
        "topology": job.request["topology"],
        "ranks": len(job.request["ranks"]),
        "bytes": job.request["bytes"],
        "time_limit": job.request["time_limit"],
        "book": bool(job.request.get("book")),
        "progress": job.progress,
        "cancel_requested": job.cancel,
        "plan": job.plan,
        "error": error,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "heartbeat_at": job.heartbeat_at,
        "url": f"/v1/jobs/{job.id}",
    }


def resolution_document(found: Resolution) -> Json:
    """A plan's place and quality as the API shows it."""
    return {
        "digest": found.plan,
        "url": f"/v1/plans/{found.plan}",
        "bytes": found.bytes,
        "min_bytes": found.min_bytes,
        "max_bytes": found.max_bytes,
        "bound_seconds": found.bound_seconds,
        "predicted_seconds": found.predicted_seconds,
        "gap": found.gap,
    }
