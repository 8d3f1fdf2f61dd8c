"""Plan books: a few plans that together answer every size of a range."""

from __future__ import annotations

from fastapi import APIRouter, Response

from server import planning
from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Context, Here, Writer
from server.jobs.request import SolveRequest
from server.openapi import PROBLEMS
from server.store.jobs import Job
from synth.errors import DemandError

router = APIRouter(prefix="/books", tags=["plans"], route_class=JsonRoute, responses=PROBLEMS)


@router.post(
    "",
    status_code=201,
    responses={202: {"model": schemas.PlanPending, "description": "A job makes it; equal requests share that job"}},
)
def post_book(
    body: schemas.BookRequest, context: Here, response: Response, caller: Writer
) -> schemas.BookAnswer | schemas.PlanPending:
    """Ask for plans for a range of sizes: 201 when they are known, else 202 with the job that makes them.

    From then on resolve picks the one for each size.
    """
    request = _request(context, body)
    found = planning.order(context, request, caller, retry=True)
    if isinstance(found, Job):
        response.status_code = 202
        response.headers["Location"] = f"/v1/jobs/{found.id}"
        return schemas.PlanPending(job=schemas.Job(**planning.job_document(found)))
    pages = planning.pages(context, request)
    return schemas.BookAnswer(
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        plans=[schemas.PlanAnswer(**planning.resolution_document(page)) for page in pages],
    )


def _request(context: Context, body: schemas.BookRequest) -> SolveRequest:
    """The complete request: defaults filled in, limits checked."""
    planning.check_seconds(body.time_limit, context.settings.max_seconds)
    if not 0 < body.range.min <= body.range.max:
        raise DemandError(
            f"#/range: from {body.range.min} to {body.range.max}; must begin above 0, smallest first", subject="#/range"
        )
    stored = planning.known_topology(context, body.topology)
    ranks = stored.ranks if body.ranks is None else tuple(body.ranks)
    return SolveRequest(
        topology=stored.digest,
        fingerprint=stored.fingerprint,
        places=planning.places_of(stored, ranks, most=context.settings.max_ranks),
        collective=body.collective,
        ranks=ranks,
        bytes=body.range.max,
        min_bytes=body.range.min,
        max_bytes=body.range.max,
        root=body.root,
        pairs=tuple((pair[0], pair[1]) for pair in body.pairs or ()),
        cost=body.objective.cost,
        launch_ns=body.objective.launch_ns,
        time_limit=body.time_limit,
        seed=body.seed,
        book=True,
    )
