"""Plans: asked for, then read whole or by rank."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from server import planning
from server.api.v1 import schemas
from server.api.v1.schemas.common import Document
from server.bodies import JsonRoute
from server.context import Context, Here, Reader, Writer
from server.jobs.request import SolveRequest
from server.openapi import DOCUMENT, PROBLEMS
from server.responses import immutable
from server.store import plans
from server.store.documents import unpack
from server.store.jobs import Job
from synth.errors import DemandError, NotFoundError
from synth.plan.ir import MAX_BYTES

router = APIRouter(prefix="/plans", tags=["plans"], route_class=JsonRoute, responses=PROBLEMS)


@router.post(
    "",
    status_code=201,
    responses={202: {"model": schemas.PlanPending, "description": "A job makes it; equal requests share that job"}},
)
def post_plan(
    body: schemas.PlanRequest, context: Here, response: Response, caller: Writer
) -> schemas.PlanAnswer | schemas.PlanPending:
    """Ask for a plan: 201 when it is known, else 202 with the job that makes it."""
    found = planning.order(context, _request(context, body), caller, retry=True)
    if isinstance(found, Job):
        response.status_code = 202
        response.headers["Location"] = f"/v1/jobs/{found.id}"
        return schemas.PlanPending(job=schemas.Job(**planning.job_document(found)))
    response.headers["Location"] = f"/v1/plans/{found.plan}"
    return schemas.PlanAnswer(**planning.resolution_document(found))


def _request(context: Context, body: schemas.PlanRequest) -> SolveRequest:
    """The complete request: defaults filled in, limits checked."""
    planning.check_seconds(body.time_limit, context.settings.max_seconds)
    stored = planning.known_topology(context, body.topology)
    ranks = stored.ranks if body.ranks is None else tuple(body.ranks)
    places = planning.places_of(stored, ranks, most=context.settings.max_ranks)
    size, least, most = _sizes(body)
    return SolveRequest(
        topology=stored.digest,
        fingerprint=stored.fingerprint,
        places=places,
        collective=body.collective,
        ranks=ranks,
        bytes=size,
        min_bytes=least,
        max_bytes=most,
        root=body.root,
        pairs=tuple((pair[0], pair[1]) for pair in body.pairs or ()),
        demand=_matrix(body),
        cost=body.objective.cost,
        launch_ns=body.objective.launch_ns,
        time_limit=body.time_limit,
        seed=body.seed,
        strategies=planning.known_strategies(body.strategies, exact=body.exact is not None),
        exact=_exact(body),
    )


def _exact(body: schemas.PlanRequest) -> Document | None:
    if body.exact is None:
        return None
    if body.objective.cost != "rounds":
        raise DemandError("#/exact: is proven in the rounds model; leave out objective.cost", subject="#/exact")
    return body.exact.model_dump()


def _sizes(body: schemas.PlanRequest) -> tuple[int, int, int]:
    """(size to make the plan for, smallest, largest size it answers)."""
    size = body.bytes
    if size is None and body.demand is not None:
        size = int(max(sum(row) for row in body.demand.bytes))
    if size is None and body.range is not None:
        size = body.range.max
    if size is None:
        raise DemandError("#/bytes: is missing; give bytes, a range or a demand", subject="#/bytes")
    if body.range is not None:
        if not body.range.min <= size <= body.range.max:
            raise DemandError(
                f"#/range: from {body.range.min} to {body.range.max} must hold the size {size}", subject="#/range"
            )
        return size, body.range.min, body.range.max
    if body.demand is not None:
        return size, 0, MAX_BYTES
    return size, *planning.around(size)


def _matrix(body: schemas.PlanRequest) -> tuple[tuple[float, ...], ...] | None:
    if body.demand is None:
        return None
    rows = body.demand.bytes
    for number, row in enumerate(rows):
        if len(row) != len(rows):
            where = f"#/demand/bytes/{number}"
            raise DemandError(f"{where}: must be a row of {len(rows)} numbers, one per rank", subject=where)
    return tuple(map(tuple, rows))


@router.get("")
def list_plans(context: Here, _: Reader, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> schemas.Plans:
    """The newest plans."""
    with context.database.read() as connection:
        return schemas.Plans(plans=[schemas.PlanSummary(**row) for row in plans.every(connection, limit=limit)])


@router.get("/{digest}", response_class=Response, responses=DOCUMENT)
def get_plan(digest: schemas.Digest, request: Request, context: Here, _: Reader) -> Response:
    """A plan document; it never changes."""
    with context.database.read() as connection:
        packed = plans.get(connection, digest)
    if packed is None:
        raise NotFoundError(f"plan {digest}: is not stored here", subject="digest")
    return immutable(request, digest=digest, packed=packed, private=request.app.state.tokens is not None)


@router.get("/{digest}/ranks/{rank}", response_class=Response, responses=DOCUMENT)
async def get_slice(digest: schemas.Digest, rank: schemas.Rank, request: Request, context: Here, _: Reader) -> Response:
    """One rank's part of a plan, a synth-plan-slice/1 document; it never changes."""
    found = context.slices.kept(digest, rank)
    if found is None:
        found = await run_in_threadpool(context.slices.get, digest, rank)
    tag, packed = found
    return immutable(request, digest=tag, packed=packed, private=request.app.state.tokens is not None)


@router.get(
    "/{digest}/export/{format}",
    response_class=Response,
    responses={200: {"description": "MSCCL XML", "content": {"application/xml": {"schema": {"type": "string"}}}}},
)
def export_plan(
    digest: schemas.Digest, format: Literal["msccl-xml", "msccl-xml-v1"], context: Here, _: Reader
) -> Response:
    """A plan in another system's format; 422 when that format cannot express it."""
    with context.database.read() as connection:
        packed = plans.get(connection, digest)
    if packed is None:
        raise NotFoundError(f"plan {digest}: is not stored here", subject="digest")
    text = context.perform("export", {"plan": unpack(packed), "format": format})["text"]
    return Response(text, media_type="application/xml")
