"""Telemetry: what running jobs measure, and which edges fall behind."""

from __future__ import annotations

import time
from dataclasses import asdict

from fastapi import APIRouter

from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Here, Probe, Reader
from server.openapi import PROBLEMS
from server.planning import known_topology
from server.store import measurements
from synth.errors import DemandError

router = APIRouter(prefix="/telemetry", tags=["telemetry"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("", status_code=202)
def post_telemetry(body: schemas.TelemetryRequest, context: Here, _: Probe) -> schemas.TelemetryAnswer:
    """Add what a job measured since its last report."""
    stored = known_topology(context, body.topology)
    gpus = set(stored.ranks)
    for number, edge in enumerate(body.edges):
        if edge.src not in gpus or edge.dst not in gpus or edge.src == edge.dst:
            raise DemandError(
                f"#/edges/{number}: {edge.src[:60]} -> {edge.dst[:60]} must join two GPUs of topology {stored.name}",
                subject=f"#/edges/{number}",
            )
    edges = [(edge.src, edge.dst, edge.bytes, edge.seconds) for edge in body.edges]
    with context.database.write() as connection:
        measurements.add(connection, stored.digest, edges, now=time.time())
    return schemas.TelemetryAnswer(edges=len(edges))


@router.get("/{topology}")
def get_telemetry(topology: schemas.Digest, context: Here, _: Reader) -> schemas.Telemetry:
    """What jobs measured on a topology, and a finding for each edge that falls behind those with an equal route."""
    stored = known_topology(context, topology)
    with context.database.read() as connection:
        edges = [asdict(edge) for edge in measurements.of(connection, stored.digest)]
    if not edges:
        return schemas.Telemetry(edges=[], findings=[])
    return schemas.Telemetry(**context.perform("compare", {"topology": stored.text, "edges": edges}))
