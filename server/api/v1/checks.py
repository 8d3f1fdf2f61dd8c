"""What is computed on the spot: checking and pricing somebody's plan, forming groups, placing experts."""

from __future__ import annotations

from fastapi import APIRouter

from server.api.v1 import schemas
from server.bodies import JsonRoute
from server.context import Context, Here, Reader
from server.errors import TooManyRanks
from server.openapi import PROBLEMS
from server.planning import known_topology
from server.reading import INLINE, check_size
from synth import documents, topology
from synth.documents import Json
from synth.errors import TopologyError
from synth.formats import expert_maps

router = APIRouter(tags=["checks"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("/verify")
def verify(body: schemas.VerifyRequest, context: Here, _: Reader) -> schemas.VerifyAnswer:
    """Check every rule of a plan; with a topology, its routes and its bound too."""
    _check_ranks(context, body.plan)
    machine = None if body.topology is None else _topology(context, body.topology)
    return schemas.VerifyAnswer(
        **context.perform("check", {"plan": body.plan, "topology": machine, "bytes": body.bytes})
    )


@router.post("/simulate")
def simulate(body: schemas.SimulateRequest, context: Here, _: Reader) -> schemas.SimulateAnswer:
    """Price a valid plan."""
    _check_ranks(context, body.plan)
    wanted = body.plan.get("topology") if body.topology is None else body.topology
    if not isinstance(wanted, str | dict):
        raise TopologyError(
            "#/topology: is missing; give a document or the digest of a stored one", subject="#/topology"
        )
    task = {
        "plan": body.plan,
        "topology": _topology(context, wanted),
        "bytes": body.bytes,
        "cost": body.cost,
        "launch_ns": body.launch_ns,
    }
    return schemas.SimulateAnswer(**context.perform("price", task))


@router.post("/groups")
def groups(body: schemas.GroupsRequest, context: Here, _: Reader) -> schemas.GroupsAnswer:
    """Form expert-parallel groups; the answer of ``synth groups``."""
    if body.ranks is not None and len(body.ranks) > context.settings.max_ranks:
        raise TooManyRanks(f"#/ranks: {len(body.ranks)} of them; at most {context.settings.max_ranks} are accepted")
    task = body.model_dump(exclude={"topology"}, exclude_none=True)
    task["topology"] = _topology(context, body.topology)
    return schemas.GroupsAnswer(**context.perform("groups", task))


@router.post("/placements")
def place(body: schemas.PlacementRequest, context: Here, _: Reader) -> schemas.PlacementAnswer:
    """Place experts, and copies of the busy ones, on ranks; the answer of ``synth place``."""
    task = body.model_dump(exclude={"topology"}, exclude_none=True)
    expert_maps.read_loads({"loads": body.loads}, subject="")
    task["topology"] = _topology(context, body.topology)
    return schemas.PlacementAnswer(**context.perform("place", task))


def _check_ranks(context: Context, plan: Json) -> None:
    ranks = plan.get("ranks")
    if isinstance(ranks, list) and len(ranks) > context.settings.max_ranks:
        raise TooManyRanks(
            f"#/plan/ranks: {len(ranks)} of them; at most {context.settings.max_ranks} are accepted",
            subject="#/plan/ranks",
        )


def _topology(context: Context, wanted: str | Json) -> str:
    """The text of a topology that is given whole or by digest."""
    if isinstance(wanted, str):
        return known_topology(context, wanted).text
    if check_size(context.settings, wanted, where="#/topology") <= INLINE:
        return topology.dumps(topology.from_document(wanted))  # what is wrong is said without a child process
    return documents.canonical(wanted)
