"""Nodes: what each one's probe last reported."""

from __future__ import annotations

import json
import time
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Context, Here, Probe, Reader
from server.openapi import PROBLEMS
from server.reading import read_topology
from server.responses import revalidated
from server.store import nodes
from server.store.nodes import Report
from synth.documents import Json
from synth.errors import NotFoundError, TopologyError

router = APIRouter(prefix="/nodes", tags=["nodes"], route_class=JsonRoute, responses=PROBLEMS)

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")]


@router.put("/{name}/topology")
def put_topology(name: Name, document: schemas.Document, context: Here, _: Probe) -> schemas.NodeAnswer:
    """Replace a node's report with a synth-topology/1 document that describes this one node."""
    described = read_topology(context, document)
    if described["nodes"] != [name]:
        raise TopologyError(
            f"body#/devices: describe {', '.join(described['nodes'][:4]) or 'no node'}; "
            f"a report of {name} describes that node and no other",
            subject="body#/devices",
        )
    now = time.time()
    report = Report(
        name=name,
        digest=described["digest"],
        fingerprint=described["fingerprint"],
        text=described["text"],
        findings=described["findings"],
        reported_at=now,
        changed_at=now,
    )
    with context.database.write() as connection:
        changed = nodes.put(connection, report)
    return schemas.NodeAnswer(
        name=name,
        digest=report.digest,
        fingerprint=report.fingerprint,
        changed=changed,
        findings=report.findings,
    )


@router.get("")
def list_nodes(context: Here, _: Reader) -> schemas.Nodes:
    """All nodes that reported."""
    with context.database.read() as connection:
        return schemas.Nodes(nodes=[schemas.Node(**_summary(report)) for report in nodes.every(connection)])


@router.get("/{name}")
def get_node(name: Name, context: Here, _: Reader) -> schemas.NodeReport:
    """One node's latest report."""
    report = _known(context, name)
    return schemas.NodeReport(**_summary(report), topology=json.loads(report.text))


@router.get(
    "/{name}/topology",
    response_class=Response,
    responses={
        200: {"description": "The document", "content": {"application/json": {"schema": {"type": "object"}}}},
        304: {"description": "It has not changed"},
    },
)
def get_topology(name: Name, request: Request, context: Here, _: Reader) -> Response:
    """The document itself, with its ETag."""
    return revalidated(request, json.loads(_known(context, name).text))


def _known(context: Context, name: str) -> Report:
    with context.database.read() as connection:
        report = nodes.get(connection, name)
    if report is None:
        raise NotFoundError(f"node {name}: has not reported here", subject="name")
    return report


def _summary(report: Report) -> dict[str, Json]:
    return {
        "name": report.name,
        "digest": report.digest,
        "fingerprint": report.fingerprint,
        "findings": report.findings,
        "reported_at": report.reported_at,
        "changed_at": report.changed_at,
        "age_seconds": max(time.time() - report.reported_at, 0.0),
    }
