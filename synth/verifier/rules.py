"""The rules of a plan, as a table of named checks; each runs alone, and all violations are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from synth.collective import EVERY, Collective, Demand
from synth.errors import DemandError, PlanError, TopologyError
from synth.plan import Certificate, Plan, expand
from synth.plan.claim import Claim
from synth.plan.sizes import demand_of
from synth.topology import Routes, Topology
from synth.topology.automorphism import under
from synth.topology.routes import BY_KIND
from synth.verifier.certificate import proven_bound_ns
from synth.verifier.holdings import check_movement, check_reduction
from synth.verifier.violation import Violation

TOLERANCE = 1e-6
"""How much a stated bound may exceed what its lengths prove, for rounding in other implementations."""


def check_chunks(plan: Plan) -> Iterator[Violation]:
    """``chunk-ends``: each chunk starts and ends where the collective says."""
    origin, target = plan.chunks.origin, plan.chunks.target
    member_origin = (origin >= 0) & (origin < plan.members)
    member_target = (target >= 0) & (target < plan.members)
    match plan.collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            right = member_origin & member_target & (origin != target)
        case Collective.ALLGATHER:
            right = member_origin & (target == EVERY)
        case Collective.BROADCAST:
            right = (origin == plan.root) & (target == EVERY)
        case Collective.REDUCE_SCATTER:
            right = (origin == EVERY) & member_target
        case Collective.REDUCE:
            right = (origin == EVERY) & (target == plan.root)
        case Collective.ALLREDUCE:
            right = (origin == EVERY) & (target == EVERY)
    for c in np.flatnonzero(~right).tolist():
        yield Violation(
            rule="chunk-ends",
            message=f"chunk {c} goes from {origin[c]} to {target[c]}, which {plan.collective.value} does not have",
            chunk=c,
        )


def check_shares(plan: Plan) -> Iterator[Violation]:
    """``shares``: the shares of every block are positive and sum to the denominator."""
    chunks = plan.chunks
    for c in np.flatnonzero(chunks.share < 1).tolist():
        message = f"chunk {c} has share {chunks.share[c]}; must be at least 1"
        yield Violation(rule="shares", message=message, chunk=c)
    width = len(plan.ranks) + 1
    blocks, first, which = np.unique(
        (chunks.origin + 1) * width + chunks.target + 1, return_index=True, return_inverse=True
    )
    total = np.zeros(len(blocks), dtype=np.int64)
    np.add.at(total, which, chunks.share)
    for b in np.flatnonzero(total != plan.denominator).tolist():
        c = first[b].item()
        yield Violation(
            rule="shares",
            message=f"the shares of block {chunks.origin[c]} -> {chunks.target[c]} sum to {total[b]}, "
            f"not to the denominator {plan.denominator}",
            chunk=c,
        )
    present = set(blocks.tolist())
    for origin, target in _promised(plan):
        if (origin + 1) * width + target + 1 not in present:
            yield Violation(
                rule="shares",
                message=f"block {origin} -> {target} has no chunk",
                rank=origin if origin != EVERY else target if target != EVERY else None,
            )


def _promised(plan: Plan) -> list[tuple[int, int]]:
    """Blocks a plan must have; for sendrecv those it lists are those that were asked."""
    if plan.collective is Collective.SENDRECV:
        return []
    blocks = demand_of(plan, 0).blocks
    pairs = zip(blocks.origin.tolist(), blocks.target.tolist(), strict=True)
    return [(a, b) for a, b in pairs if plan.demand is None or plan.demand[a, b] > 0]


def check_order(plan: Plan) -> Iterator[Violation]:
    """``order``: transfers are sorted by round, src, dst, chunk; ``self-send``: nobody sends to itself."""
    transfers = plan.transfers
    columns = (transfers.round, transfers.src, transfers.dst, transfers.chunk)
    later = np.zeros(max(len(transfers) - 1, 0), dtype=bool)
    equal = np.ones_like(later)
    for column in columns:
        later |= equal & (column[1:] < column[:-1])
        equal &= column[1:] == column[:-1]
    if later.any():
        t = int(np.flatnonzero(later)[0]) + 1
        yield Violation(
            rule="order",
            message=f"transfer {t} stands before one it should follow; sort by round, src, dst, chunk",
            round=int(transfers.round[t]),
            chunk=int(transfers.chunk[t]),
        )
    for t in np.flatnonzero(transfers.src == transfers.dst).tolist():
        rank = int(transfers.src[t])
        yield Violation(
            rule="self-send",
            message=f"rank {rank} sends to itself in round {transfers.round[t]}",
            rank=rank,
            round=int(transfers.round[t]),
            chunk=int(transfers.chunk[t]),
        )


def check_reduce_flags(plan: Plan) -> Iterator[Violation]:
    """``reduce-flag``: only reductions add."""
    if plan.collective.reduces:
        return
    for t in np.flatnonzero(plan.transfers.reduce).tolist():
        yield Violation(
            rule="reduce-flag",
            message=f"transfer {t} adds, but {plan.collective.value} only moves data",
            rank=int(plan.transfers.dst[t]),
            round=int(plan.transfers.round[t]),
            chunk=int(plan.transfers.chunk[t]),
        )


def check_holdings(plan: Plan) -> Iterator[Violation]:
    """``send-before-data``, ``received-twice``, ``reduced-twice``, ``overwritten``, ``not-delivered``."""
    yield from check_reduction(plan) if plan.collective.reduces else check_movement(plan)


PLAN_RULES: tuple[Callable[[Plan], Iterator[Violation]], ...] = (
    check_chunks,
    check_shares,
    check_order,
    check_reduce_flags,
    check_holdings,
)
"""Rules that need the (expanded) plan alone, in the order they run."""


def check_routes(plan: Plan, topology: Topology, routes: Routes) -> Iterator[Violation]:
    """``topology``: the plan was made for this machine; ``route``: every transfer has one there."""
    if plan.topology and plan.topology != topology.fingerprint:
        yield Violation(
            rule="topology",
            message=f"the plan is for topology {plan.topology[:12]}, "
            f"but {topology.name} is {topology.fingerprint[:12]}",
        )
    transfers = plan.transfers
    for t in np.flatnonzero(~routes.exists[transfers.src, transfers.dst] & (transfers.src != transfers.dst)).tolist():
        src, dst = int(transfers.src[t]), int(transfers.dst[t])
        yield Violation(
            rule="route",
            message=f"rank {src} ({plan.ranks[src]}) sends to rank {dst} ({plan.ranks[dst]}), "
            f"which has no route on {topology.name}",
            rank=src,
            round=int(transfers.round[t]),
            chunk=int(transfers.chunk[t]),
        )


def check_bound(plan: Plan, routes: Routes, *, bytes: int | None = None) -> Iterator[Violation]:
    """``bound``: the stated bound is no higher than what its certificate proves."""
    if plan.certificate is None:
        return
    states_size = plan.demand is not None or plan.predicted is not None
    try:
        demand = demand_of(plan, None if states_size else bytes)
    except DemandError as error:
        yield Violation(rule="bound", message=error.message)
        return
    yield from check_certificate(plan.certificate, routes, demand)


def check_certificate(certificate: Certificate, routes: Routes, demand: Demand) -> Iterator[Violation]:
    """``bound``: a certificate states no more for a demand than it proves."""
    try:
        proven = proven_bound_ns(certificate, routes, demand)
    except PlanError as error:
        yield Violation(rule="bound", message=error.message)
        return
    stated = certificate.bound_ns
    if stated > proven * (1 + TOLERANCE) + 1e-6:
        yield Violation(
            rule="bound", message=f"the stated bound is {stated:.6g} ns, but its certificate proves {proven:.6g} ns"
        )


def bound_checkable(plan: Plan, bytes: int | None = None) -> bool:
    """Whether the plan states a bound and a size to check it at."""
    return plan.certificate is not None and (bytes is not None or plan.predicted is not None or plan.demand is not None)


def verify(
    plan: Plan, topology: Topology | None = None, *, bytes: int | None = None, routes: Routes | None = None
) -> tuple[Violation, ...]:
    """Check every rule of a plan.

    Args:
        plan: as read; symmetric plans are expanded first.
        topology: where it is to run; without it, rules about routes and the bound are left out.
        bytes: size the stated bound is for, where the plan does not say.
        routes: of the topology among the plan's ranks, where they are known.

    Returns:
        All violations; none means that the plan is valid.
    """
    try:
        whole = expand(plan)
    except PlanError as error:
        return (Violation(rule="symmetry", message=error.message),)
    found = [violation for rule in PLAN_RULES for violation in rule(whole)]
    if topology is not None:
        try:
            routes = routes or Routes.among(topology, whole.ranks)
        except TopologyError as error:
            return (*found, Violation(rule="ranks", message=error.message))
        if plan.symmetry is not None and routes.ranks > BY_KIND:
            routes = under(routes, np.array(plan.symmetry.generators)) or routes
        found += check_routes(whole, topology, routes)
        if bound_checkable(plan, bytes):
            found += check_bound(whole, routes, bytes=bytes)
    return tuple(found)


def verify_claim(claim: Claim, topology: Topology) -> tuple[Violation, ...]:
    """Check that a bound is proven: its certificate, and the symmetries it is to be checked by."""
    try:
        routes = Routes.among(topology, claim.ranks)
        routes.require_connected()
    except TopologyError as error:
        return (Violation(rule="ranks", message=error.message),)
    if claim.symmetry is not None:
        symmetric = under(routes, np.array(claim.symmetry.generators))
        if symmetric is None or symmetric.group is None or symmetric.group.order != claim.symmetry.order:
            message = (
                f"its symmetries are not automorphisms of {topology.name} that make a group of {claim.symmetry.order}"
            )
            return (Violation(rule="symmetry", message=message),)
        routes = symmetric
    return tuple(check_certificate(claim.certificate, routes, claim.demand))
