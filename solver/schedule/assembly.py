"""From fractional shares of routes to a draft: an allreduce's halves joined, whole shares, rounds and segments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solver.bound import Columns, Problem, Shape
from solver.bound.pricing import cheapest
from solver.schedule import timing
from solver.schedule.draft import Draft
from solver.schedule.rounding import Whole, whole
from solver.schedule.timed import Timed
from solver.schedule.unfold import unfold
from synth.collective import Collective
from synth.plan import Chunks, Transfers


def draft_of(
    problem: Problem,
    routes: Timed,
    shares: np.ndarray,
    *,
    prices: np.ndarray,
    launch_ns: float,
    segments: int | None = None,
) -> Draft:
    """The schedule of a fractional solution; commodities too small for the program join with a cheapest route.

    Args:
        problem: what was solved.
        routes: with a share above zero.
        shares: [routes] part of its commodity.
        prices: [rows] of the bound, for those that join.
        launch_ns: cost of starting one round.
        segments: for which the routes' rounds were chosen; default: every hop as early as its route allows.
    """
    inward = None
    if problem.paired:
        routes, shares, inward = _joined(problem, routes, shares)
        group = np.zeros(len(shares), dtype=np.int64)
    else:
        missing = np.setdiff1d(np.arange(len(problem.commodities)), problem.moving)
        if len(missing):
            rest = timing.earliest(problem, _cheapest_for(problem, missing, prices))
            routes, shares = Timed.join([routes, rest]), np.concatenate([shares, np.ones(len(rest))])
        group = routes.columns.commodity
    columns = routes.columns
    size = problem.commodities.size[columns.commodity]

    def seconds(parts: np.ndarray) -> float:
        moved = np.repeat(size * parts, np.diff(columns.starts))
        return timing.Pipeline(problem, routes.rounds, columns.hops, moved, launch_ns).seconds(segments or 1)

    used = whole(problem, columns, shares, group, seconds=None if segments is None else seconds)
    if problem.group is not None and problem.listed is None:  # such symmetries cannot be stated in a plan
        used, problem = unfold(problem, used), problem.plain
    return pipeline(
        problem,
        used,
        launch_ns,
        fixed=None if segments is None else routes.take(used.kept).rounds,
        inward=None if inward is None else inward[used.kept],
    )


def _cheapest_for(problem: Problem, commodities: np.ndarray, prices: np.ndarray) -> Columns:
    """A route of least price, then fewest hops, for commodities of (almost) no bytes."""
    everything = replace(problem, commodities=replace(problem.commodities, size=np.ones(len(problem.commodities))))
    columns, _ = cheapest(everything, prices)
    return columns.take(commodities)


def _halves_of_one_root(problem: Problem) -> Columns:
    """For an allreduce of no bytes: reduce to rank 0 and spread from it."""
    even = np.ones(problem.crossing.shape[1])
    return _cheapest_for(problem, np.array([0, len(problem.commodities) // 2]), even)


def _joined(problem: Problem, routes: Timed, shares: np.ndarray) -> tuple[Timed, np.ndarray, np.ndarray]:
    """Pair in-trees with out-trees of the same root, those that end late with those that begin and end soon.

    Returns:
        (routes whose first hops go in and the others out, labelled by the root's in-tree commodity; their shares, which
        sum to 1; how many of their hops go in).
    """
    if not len(routes):
        halves = _halves_of_one_root(problem)
        columns = Columns(np.zeros(1, dtype=np.int64), halves.starts[::2], halves.hops)
        return Timed(columns, np.zeros_like(columns.hops)), np.ones(1), halves.starts[1:2]
    columns = routes.columns
    shapes, roots = problem.commodities.shape[columns.commodity], problem.commodities.root[columns.commodity]
    last = routes.last
    parts, label, values = [], [], []
    for number, root in enumerate(problem.commodities.root[: len(problem.commodities) // 2].tolist()):
        inward = np.flatnonzero((roots == root) & (shapes == Shape.IN_TREE))
        outward = np.flatnonzero((roots == root) & (shapes == Shape.OUT_TREE))
        inward = inward[np.argsort(last[inward], kind="stable")]
        outward = outward[np.argsort(-last[outward], kind="stable")]
        for a, b, share in northwest(shares[inward], shares[outward]):
            parts.append(routes.take(np.array([inward[a], outward[b]])))
            label.append(number)
            values.append(share)
    both = Timed.join(parts)
    starts = both.columns.starts
    joined = Columns(np.array(label, dtype=np.int64), starts[::2], both.columns.hops)
    total = np.array(values)
    return Timed(joined, both.rounds), total / total.sum(), np.diff(starts)[::2]


def northwest(supply: np.ndarray, demand: np.ndarray) -> list[tuple[int, int, float]]:
    """Match two lists of shares greedily in order (the north-west corner rule)."""
    matched = []
    left, right = supply.astype(float).tolist(), demand.astype(float).tolist()
    a = b = 0
    while a < len(left) and b < len(right):
        share = min(left[a], right[b])
        if share > 1e-9:
            matched.append((a, b, share))
        left[a] -= share
        right[b] -= share
        if left[a] <= right[b]:
            a += 1
        else:
            b += 1
    return matched


def pipeline(
    problem: Problem,
    routes: Whole,
    launch_ns: float,
    *,
    fixed: np.ndarray | None = None,
    inward: np.ndarray | None = None,
) -> Draft:
    """Every hop as early as its route allows, or in fixed rounds, with the best number of segments.

    Args:
        problem: what to schedule.
        routes: whole.
        launch_ns: cost of starting one round.
        fixed: [hops] rounds.
        inward: [routes] for an allreduce, how many of a route's hops reduce; default: one for each rank but the root.
    """
    columns, ranks, demand = routes.columns, problem.routes.ranks, problem.demand
    chunk = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    blocks = demand.blocks
    block = np.zeros(len(columns), dtype=np.int64) if problem.paired else problem.commodities.block[columns.commodity]
    reduce = np.full(len(chunk), int(demand.collective.reduces))
    into = np.full(len(columns), ranks - 1) if inward is None else inward
    if problem.paired:
        outward = np.arange(len(chunk)) - columns.starts[chunk] >= into[chunk]
        reduce[outward] = 0
    if fixed is not None:
        round = fixed
    elif problem.paired:
        round = _allreduce_rounds(columns, ranks, into, outward)
    elif demand.collective.reduces:
        round = timing.in_tree_rounds(columns, ranks)
    elif demand.collective in (Collective.ALLTOALL, Collective.SENDRECV):
        round = timing.path_rounds(columns)
    else:
        round = timing.out_tree_rounds(columns, ranks)
    size = blocks.size[block] * routes.shares / routes.denominator
    if problem.listed is not None and not problem.paired:
        size = size * problem.listed.order
    segments, _ = timing.Pipeline(problem, round, columns.hops, size[chunk], launch_ns).best()
    transfers = Transfers(chunk, columns.hops // ranks, columns.hops % ranks, round, reduce)
    images = problem.listed.order if problem.listed is not None and problem.paired else 1
    return Draft(
        chunks=Chunks(blocks.origin[block], blocks.target[block], routes.shares),
        transfers=transfers.sorted(),
        denominator=routes.denominator * images,
        segments=segments,
    )


def _allreduce_rounds(columns: Columns, ranks: int, inward: np.ndarray, outward: np.ndarray) -> np.ndarray:
    """Reduce as early as possible, spread as soon as the root has everything."""
    round = np.zeros(len(outward), dtype=np.int64)
    halves = [
        Columns(columns.commodity, np.concatenate([[0], np.cumsum(sizes)]), columns.hops[side])
        for sizes, side in ((inward, ~outward), (np.diff(columns.starts) - inward, outward))
    ]
    into = timing.in_tree_rounds(halves[0], ranks)
    round[~outward] = into
    height = np.maximum.reduceat(into, halves[0].starts[:-1]) + 1 if len(into) else np.zeros(0, dtype=np.int64)
    round[outward] = timing.out_tree_rounds(halves[1], ranks) + np.repeat(height, np.diff(halves[1].starts))
    return round
