"""A placement request answered as JSON-able values: what the command line and the server both call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.placement.balance import balance
from solver.placement.gain import gain
from solver.placement.members import Members, members
from solver.placement.migration import Step, migration
from solver.placement.place import MIN_GAIN, SLACK, Placed, place
from solver.placement.problem import Placement, Shape
from solver.placement.traffic import Traffic, cross_node_share, traffic_matrix
from synth.collective import Collective, Demand
from synth.errors import InputError
from synth.formats import expert_maps
from synth.simulator import simulate
from synth.topology import Routes, Topology


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Everything ``synth place`` and ``/v1/placements`` can be asked.

    Attributes:
        loads: [layers, experts] tokens per expert.
        replicas: slots per layer in all; None: as few as the ranks allow.
        ep_size: ranks; None: all GPUs.
        expert_groups: groups of consecutive experts that stay in one node.
        previous: [layers, slots] placement in force.
        coactivation: [layers, experts, experts] tokens that chose both experts.
        sources: [layers, ranks, experts] tokens each rank sends to each expert.
        expert_bytes: weights of one expert in one layer; 0: not known.
        memory_bytes: what a rank may spend on experts; None: enough.
        slack: loads this close count as equal.
        min_gain: smaller gains keep the previous placement.
    """

    loads: np.ndarray
    replicas: int | None = None
    ep_size: int | None = None
    expert_groups: int = 1
    previous: np.ndarray | None = None
    coactivation: np.ndarray | None = None
    sources: np.ndarray | None = None
    expert_bytes: int = 0
    memory_bytes: int | None = None
    slack: float = SLACK
    min_gain: float = MIN_GAIN


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """The answer and the values behind it.

    Attributes:
        document: JSON-able.
        placed: maps, bounds, moves.
        members: ranks.
        steps: of the migration; none without a previous placement.
    """

    document: dict[str, Any]
    placed: Placed
    members: Members
    steps: list[Step]


def answer(topology: Topology, request: Request) -> Answered:
    """Place, and say everything about it.

    Raises:
        InputError: the request does not fit the topology or itself.
    """
    chosen = members(topology, request.ep_size)
    shape = shape_of(request, chosen)
    check_memory(request, shape)
    routes = Routes.among(topology, chosen.devices)
    traffic = Traffic(
        sources=request.sources,
        together=request.coactivation,
        price=_price(routes) if request.sources is not None else None,
    )
    placed = place(
        request.loads,
        shape,
        traffic=traffic,
        previous=request.previous,
        slack=request.slack,
        min_gain=request.min_gain,
    )
    loads = request.loads.astype(np.float64)
    before = Placement(shape, trivial(shape, len(loads)) if request.previous is None else request.previous)
    steps = [] if request.previous is None else migration(before, placed.placement, routes)
    expected = gain(before, placed.placement, loads)
    matrices = [traffic_matrix(p, loads, request.sources) for p in (before, placed.placement)]
    warnings = [*chosen.warnings, *expected.warnings]
    if request.expert_groups > 1 and not shape.grouped:
        warnings.append(
            f"{request.expert_groups} expert groups do not divide by {shape.nodes} nodes; groups were not kept together"
        )
    mean = np.maximum(loads.sum(axis=1) / shape.ranks, 1e-300)
    placement = placed.placement
    document: dict[str, Any] = {
        **expert_maps.to_eplb(placement.phy2log, placement.log2phy, placement.logcnt),
        "ranks": list(chosen.devices),
        "nodes": shape.nodes,
        "max_over_mean": placement.max_over_mean(loads).tolist(),
        "bound_max_over_mean": np.maximum(placed.bound / mean, 1.0).tolist(),
        "eplb_max_over_mean": np.maximum(placed.baseline / mean, 1.0).tolist(),
        "before_max_over_mean": before.max_over_mean(loads).tolist(),
        "cross_node_share": cross_node_share(placement, matrices[1]).tolist(),
        "moves": placed.moves.tolist(),
        "kept": placed.kept.tolist(),
        "min_gain": placed.min_gain,
        "gain": {"low": expected.low, "expected": expected.expected, "high": expected.high},
        "traffic": {name: _summary(m) for name, m in zip(("before", "after"), matrices, strict=True)},
        "without_replicas": _without_replicas(request, shape, loads),
        "extra_bytes_per_rank": (shape.slots - shape.experts) * len(loads) * request.expert_bytes / shape.ranks,
        "migration": describe(steps, topology, routes, request.expert_bytes),
        "warnings": warnings,
    }
    return Answered(document=document, placed=placed, members=chosen, steps=steps)


def shape_of(request: Request, chosen: Members) -> Shape:
    """The sizes of a request; without ``replicas``, the fewest slots that the ranks share evenly."""
    if request.loads.ndim != 2:
        raise InputError("loads: must be rows of numbers, one row per layer", subject="loads")
    experts, ranks = request.loads.shape[1], len(chosen.devices)
    return Shape(
        experts=experts,
        slots=-(-experts // ranks) * ranks if request.replicas is None else request.replicas,
        ranks=ranks,
        nodes=chosen.nodes,
        groups=request.expert_groups,
    )


def check_memory(request: Request, shape: Shape) -> None:
    """Check that the experts of all layers fit a rank's memory.

    Raises:
        InputError: they do not; the message says how many slots would.
    """
    if request.memory_bytes is None:
        return
    if not request.expert_bytes:
        raise InputError("--memory: needs --expert-bytes to say how much an expert takes", subject="--memory")
    per_slot = request.expert_bytes * len(request.loads)
    if shape.slots_per_rank * per_slot > request.memory_bytes:
        fit = request.memory_bytes // per_slot * shape.ranks
        told = f"--replicas {fit} would" if fit >= shape.experts else "not even one copy of each expert does"
        raise InputError(
            f"--memory: {shape.slots_per_rank} experts per rank in {len(request.loads)} layers need "
            f"{shape.slots_per_rank * per_slot} bytes, {request.memory_bytes} are there; {told} fit",
            subject="--memory",
        )


def trivial(shape: Shape, layers: int) -> np.ndarray:
    """Experts in order, then again from the first: what serving systems start with."""
    return np.tile(np.arange(shape.slots) % shape.experts, (layers, 1))


def _price(routes: Routes) -> np.ndarray:
    """[ranks, ranks] seconds per byte over the links of each route; pairs without one cost as the dearest two."""
    weights = routes.hop_weights(1.0 / routes.topology.bytes_per_s)
    known = weights[np.isfinite(weights)]
    return np.where(np.isfinite(weights), weights, 2 * known.max(initial=1.0))


def _summary(matrix: np.ndarray) -> dict[str, Any]:
    """Tokens from rank to rank over all layers, and how uneven they are."""
    total = matrix.sum(axis=0)
    pairs = total[~np.eye(len(total), dtype=bool)]
    received = total.sum(axis=0)
    return {
        "tokens": np.round(total, 3).tolist(),
        "pair_max_over_mean": float(pairs.max() / pairs.mean()) if pairs.size and pairs.mean() > 0 else 1.0,
        "rank_max_over_mean": float(received.max() / received.mean()) if received.mean() > 0 else 1.0,
    }


def _without_replicas(request: Request, shape: Shape, loads: np.ndarray) -> dict[str, Any] | None:
    """What placing without copies would reach; None where experts do not spread evenly."""
    if shape.experts % shape.ranks or shape.slots == shape.experts:
        return None
    bare = Shape(experts=shape.experts, slots=shape.experts, ranks=shape.ranks, nodes=shape.nodes, groups=shape.groups)
    return {"max_over_mean": Placement(bare, balance(loads, bare)).max_over_mean(loads).tolist()}


def describe(steps: list[Step], topology: Topology, routes: Routes, expert_bytes: int) -> dict[str, Any]:
    """The migration in numbers: experts, rounds, and seconds where the size of an expert is known."""
    seconds = 0.0
    if expert_bytes:
        for step in steps:
            demand = Demand(collective=Collective.SENDRECV, ranks=routes.ranks, bytes=expert_bytes, pairs=step.pairs)
            seconds += simulate(step.plan, topology, demand, routes=routes).seconds
    return {
        "experts": sum(len(step.fetches) for step in steps),
        "bytes": sum(len(step.fetches) for step in steps) * expert_bytes,
        "rounds": sum(step.plan.rounds for step in steps),
        "seconds": seconds if expert_bytes else None,
        "steps": [
            {
                "layer": step.layer,
                "rounds": step.plan.rounds,
                "pairs": [list(pair) for pair in step.pairs],
                "experts": [fetch.expert for fetch in step.fetches],
                "slots": [fetch.slot for fetch in step.fetches],
            }
            for step in steps
        ],
    }
