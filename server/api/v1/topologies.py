"""Topologies: frozen clusters, immutable."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Context, Here, Reader, Writer
from server.openapi import DOCUMENT, PROBLEMS
from server.planning import known_topology
from server.reading import check_size, read_topology, stored_from
from server.responses import immutable
from server.store import nodes, topologies
from server.store.documents import pack
from synth.documents import Json
from synth.errors import NotFoundError, TopologyError

router = APIRouter(prefix="/topologies", tags=["topologies"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("", status_code=201, responses={200: {"model": schemas.TopologyAnswer, "description": "Known already"}})
def post_topology(
    body: schemas.TopologyRequest, context: Here, response: Response, _: Writer
) -> schemas.TopologyAnswer:
    """Store a topology document, or freeze the cluster from what its nodes last reported."""
    described = _freeze(context, body) if body.topology is None else read_topology(context, body.topology)
    stored = stored_from(described, time.time())
    if not stored.places:
        raise TopologyError("topology: has no GPU; a plan needs at least two", subject="body#/devices")
    with context.database.write() as connection:
        created = topologies.add(connection, stored)
    response.status_code = 201 if created else 200
    response.headers["Location"] = url = f"/v1/topologies/{stored.digest}"
    return schemas.TopologyAnswer(
        fingerprint=stored.fingerprint,
        digest=stored.digest,
        name=stored.name,
        devices=stored.devices,
        links=stored.links,
        ranks=list(stored.ranks),
        created=created,
        url=url,
    )


def _freeze(context: Context, body: schemas.TopologyRequest) -> Json:
    with context.database.read() as connection:
        reports = nodes.every(connection)
    if body.nodes is not None:
        known = {report.name: report for report in reports}
        for position, name in enumerate(body.nodes):
            if name not in known:
                raise NotFoundError(f"#/nodes/{position}: {name[:64]!r} has not reported here", subject="#/nodes")
        reports = [known[name] for name in body.nodes]
    if not reports:
        raise TopologyError("topology: no node has reported yet; PUT /v1/nodes/NAME/topology first", subject="#/nodes")
    described = context.perform("freeze", {"name": body.name, "reports": [report.text for report in reports]})
    check_size(context.settings, {"devices": [0] * described["devices"], "links": [0] * described["links"]})
    return described


@router.get("")
def list_topologies(context: Here, _: Reader, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> schemas.Topologies:
    """The newest topologies."""
    with context.database.read() as connection:
        rows = topologies.every(connection, limit=limit)
    return schemas.Topologies(topologies=[schemas.TopologySummary(**row) for row in rows])


@router.get("/{name}", response_class=Response, responses=DOCUMENT)
def get_topology(name: schemas.Digest, request: Request, context: Here, _: Reader) -> Response:
    """A topology document by its digest, or the oldest with a fingerprint."""
    stored = known_topology(context, name)
    private = request.app.state.tokens is not None
    return immutable(request, digest=stored.digest, packed=pack(stored.text), private=private)
