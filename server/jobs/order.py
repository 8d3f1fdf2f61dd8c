"""What a child process is told about a job: the request, the machine, and plans that spare it work."""

from __future__ import annotations

from sqlalchemy import Connection

from server.jobs.request import SolveRequest
from server.store import plans, topologies
from server.store.documents import unpack
from server.store.topologies import Stored
from synth.documents import Json

SIMILAR = 4
"""A plan for up to so many times the size, or so small a part of it, is one to start from."""


def order(connection: Connection, request: SolveRequest, *, solver: str) -> dict[str, Json]:
    """The task of one job, as :func:`server.tasks.solving.solve` takes it."""
    stored = topologies.find(connection, request.topology)
    assert stored is not None  # a topology is never removed
    task: dict[str, Json] = {"request": request.to_document(), "topology": stored.text, "solver": solver}
    if request.book:
        return task
    equal = plans.of_shape(connection, request.shape)
    made_for = None if equal is None else plans.topology_of(connection, equal.plan)
    if equal is not None and made_for is not None:
        other = topologies.find(connection, made_for)
        assert other is not None
        task["equal"] = {"topology": other.text, "plan": _text(connection, equal.plan)}
    else:
        task["earlier"] = _earlier(connection, stored, request)
    return task


def _earlier(connection: Connection, stored: Stored, request: SolveRequest) -> str | None:
    """A plan for the same among the same GPUs, from before some links changed; None if there is none."""
    for digest in topologies.same_gpus(connection, stored):
        found = plans.nearest(connection, request.subject_on(digest), request.bytes)
        if found is not None and found[0].bytes <= SIMILAR * request.bytes <= SIMILAR**2 * found[0].bytes:
            return _text(connection, found[0].plan)
    return None


def _text(connection: Connection, digest: str) -> str:
    document = plans.get(connection, digest)
    assert document is not None  # a plan is never removed
    return unpack(document)
