"""The routes of an earlier plan as columns of a new problem: those still there, and trees mended where one broke."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.bound import Columns, Problem, Shape
from solver.schedule import timing
from solver.schedule.timed import Timed
from synth.collective import Collective
from synth.errors import InputError
from synth.plan import Plan, expand

SHAPES = {
    Collective.ALLTOALL: Shape.PATH,
    Collective.SENDRECV: Shape.PATH,
    Collective.ALLGATHER: Shape.OUT_TREE,
    Collective.BROADCAST: Shape.OUT_TREE,
    Collective.REDUCE_SCATTER: Shape.IN_TREE,
    Collective.REDUCE: Shape.IN_TREE,
}
"""What a chunk's transfers look like; those of an allreduce are an in-tree and an out-tree."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survivors:
    """Columns that a new solve begins with.

    Attributes:
        routes: of the problem's commodities, with the rounds they had; mended ones as early as they can.
        shares: [routes] part of its commodity that took each route.
        depth: rounds that one segment of the earlier plan took.
        segments: of the earlier plan.
        lost: how many routes are gone or mended.
    """

    routes: Timed
    shares: np.ndarray
    depth: int
    segments: int
    lost: int


def survivors(problem: Problem, plan: Plan) -> Survivors:
    """Read the columns out of a plan's transfers.

    Of a problem with symmetries only the representatives' columns are read.

    Args:
        problem: on the machine as it is now.
        plan: for the same collective among the same GPUs, in any order, made when the machine was otherwise.

    Raises:
        InputError: the plan is for another collective or other ranks.
        PlanError: the plan's symmetry is none.
    """
    _require_same(problem, plan)
    whole = expand(plan)
    columns, shares, rounds = _columns(problem, whole)
    hop_gone = ~problem.routes.exists.ravel()[columns.hops]
    row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    gone = np.bincount(row[hop_gone], minlength=len(columns)) > 0
    kept = np.flatnonzero(~gone)
    sound = Timed(columns, rounds).take(kept)
    mended, of = _mended(problem, columns, np.flatnonzero(gone), sound.columns, shares[kept])
    return Survivors(
        routes=Timed.join([sound, timing.earliest(problem, mended)]),
        shares=np.concatenate([shares[kept], shares[of]]),
        depth=int(whole.transfers.round.max(initial=-1)) + 1,
        segments=whole.segments,
        lost=int(gone.sum()),
    )


def _require_same(problem: Problem, plan: Plan) -> None:
    """Check that a plan is for the problem's collective and ranks."""
    demand, devices = problem.demand, problem.routes.devices
    if plan.collective is not demand.collective:
        raise InputError(
            f"plan: is for {plan.collective.value}; to start from it, it must be for {demand.collective.value}",
            subject="plan",
        )
    before = {device: rank < plan.members for rank, device in enumerate(plan.ranks)}
    now = {device: rank < demand.ranks for rank, device in enumerate(devices)}
    if before != now:
        strange = next(device for device in (*plan.ranks, *devices) if before.get(device) != now.get(device))
        raise InputError(
            f"plan: has other ranks ({strange} differs); to start from it, its ranks must be the same GPUs",
            subject="plan",
        )
    if demand.root is not None and plan.root is not None and plan.ranks[plan.root] != devices[demand.root]:
        raise InputError(
            f"plan: its root is {plan.ranks[plan.root]}; to start from it, it must be {devices[demand.root]}",
            subject="plan",
        )


def _columns(problem: Problem, whole: Plan) -> tuple[Columns, np.ndarray, np.ndarray]:
    """(columns, [columns] shares, [hops] rounds) of a plan for the problem's commodities, lost hops included."""
    number = {device: rank for rank, device in enumerate(problem.routes.devices)}
    here = np.array([*(number[device] for device in whole.ranks), -1])
    transfers, ranks = whole.transfers, problem.routes.ranks
    # a route is what belongs to one chunk, reduced and spread apart from each other, in order of rounds
    route = transfers.chunk * 2 + 1 - transfers.reduce
    order = np.lexsort((transfers.round, route))
    route, first = np.unique(route[order], return_index=True)
    starts = np.append(first, len(order))
    src, dst = here[transfers.src[order]], here[transfers.dst[order]]
    chunk, inward = route // 2, route % 2 == 0
    origin, target = here[whole.chunks.origin[chunk]], here[whole.chunks.target[chunk]]
    if problem.paired:
        shape = np.where(inward, Shape.IN_TREE, Shape.OUT_TREE)
        root, end = np.where(inward, dst[starts[1:] - 1], src[first]), np.full(len(route), -1)
    else:
        shape = np.full(len(route), SHAPES[whole.collective])
        root = target if shape[:1] == Shape.IN_TREE else origin
        end = target if shape[:1] == Shape.PATH else np.full(len(route), -1)
    commodity = _commodity(problem, shape, root, end)
    columns = Columns(commodity, starts, src * ranks + dst)
    usable = np.flatnonzero((commodity >= 0) & _simple(columns, ranks, inward=shape == Shape.IN_TREE))
    rounds = Columns(commodity, starts, transfers.round[order]).take(usable).hops
    return columns.take(usable), (whole.chunks.share[chunk] / whole.denominator)[usable], rounds


def _commodity(problem: Problem, shape: np.ndarray, root: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[routes] the problem's commodity of this shape and these ends, -1 where there is none."""
    ranks, known = problem.routes.ranks, problem.commodities
    label = (known.shape * ranks + known.root) * (ranks + 1) + known.end + 1
    wanted = (shape * ranks + root) * (ranks + 1) + end + 1
    order = np.argsort(label)
    place = order[np.minimum(np.searchsorted(label, wanted, sorter=order), len(order) - 1)]
    return np.where(label[place] == wanted, place, -1)


def _simple(columns: Columns, ranks: int, *, inward: np.ndarray) -> np.ndarray:
    """[columns] whether no rank is entered twice (of an in-tree: left twice)."""
    row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    child = np.where(inward[row], columns.hops // ranks, columns.hops % ranks)
    once = np.unique(row * ranks + child)
    return np.asarray(np.bincount(once // ranks, minlength=len(columns)) == np.diff(columns.starts))


def _mended(
    problem: Problem, columns: Columns, broken: np.ndarray, sound: Columns, shares: np.ndarray
) -> tuple[Columns, np.ndarray]:
    """Trees without their lost hops: what hung from one hangs from the cheapest other rank that has the data.

    Links are as dear as what survives keeps them busy.

    Returns:
        (columns, [columns] which broken one each was); paths are left out, for pricing finds them at no cost.
    """
    ranks, exists = problem.routes.ranks, problem.routes.exists
    load = np.asarray(sound.usage(problem).T @ shares).ravel() + 1e-12
    weights = problem.weights(load / load.sum())
    row: list[np.ndarray] = []
    hops: list[np.ndarray] = []
    of: list[int] = []
    for column in broken.tolist():
        shape = problem.commodities.shape[columns.commodity[column]]
        if shape == Shape.PATH:
            continue
        inward = shape == Shape.IN_TREE
        mine = columns.hops[columns.starts[column] : columns.starts[column + 1]]
        parent = np.full(ranks, -1)
        ends = (mine // ranks, mine % ranks)
        parent[ends[0] if inward else ends[1]] = ends[1] if inward else ends[0]
        if not _mend(parent, weights.T if inward else weights, exists.T if inward else exists):
            continue
        child = np.flatnonzero(parent >= 0)
        hops.append(child * ranks + parent[child] if inward else parent[child] * ranks + child)
        row.append(np.full(len(child), len(of)))
        of.append(column)
    source = np.array(of, dtype=np.int64)
    if not of:
        return Columns.none(), source
    return Columns.gather(columns.commodity[source], np.concatenate(row), np.concatenate(hops)), source


def _mend(parent: np.ndarray, weights: np.ndarray, exists: np.ndarray) -> bool:
    """Hang every rank whose hop is gone from another, in place; whether that was possible."""
    child = np.flatnonzero(parent >= 0)
    for lost in child[~exists[parent[child], child]].tolist():
        below = np.arange(len(parent)) == lost
        depth = np.zeros(len(parent), dtype=np.int64)
        above = parent.copy()
        while (above >= 0).any():  # one step up for everybody, until all are at the root
            depth += above >= 0
            below |= above == lost
            above = np.where(above >= 0, parent[above], -1)
        inside = (parent >= 0) | np.isin(np.arange(len(parent)), parent)
        price = np.where(exists[:, lost] & ~below & inside, weights[:, lost] * (1.0 + depth), np.inf)
        best = int(price.argmin())
        if not np.isfinite(price[best]):
            return False
        parent[lost] = best
    return True
