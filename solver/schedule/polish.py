"""A last linear program that knows the pipeline: which routes fill and drain it best.

With S segments over d rounds the plan takes, per segment, S - d + 1 times the busiest link of everything, plus the
busiest link of each beginning and of each end of the rounds. Among routes that use the links equally well this
chooses those whose first and last rounds leave no link idle while another is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from solver.backend import INFINITY, LinearProgram, Stopped
from solver.bound import Columns, Problem, Shape
from solver.schedule import timing

MAX_ENTRIES = 400_000
"""Larger programs are not worth their time."""
MAX_STEPS = 3_000
"""Simplex steps after which the program is given up; a number of steps, not seconds, keeps plans the same each time."""


def route_rounds(problem: Problem, columns: Columns) -> np.ndarray:
    """[hops] round of each hop; the halves of an allreduce meet in the same round whatever their depths."""
    ranks = problem.routes.ranks
    shape = problem.commodities.shape[columns.commodity]
    of_hop = np.repeat(shape, np.diff(columns.starts))
    rounds = np.zeros(len(columns.hops), dtype=np.int64)
    clocks = {Shape.OUT_TREE: timing.out_tree_rounds, Shape.IN_TREE: timing.in_tree_rounds}
    for kind in Shape:
        mine = np.flatnonzero(shape == kind)
        if len(mine):
            part = columns.take(mine)
            rounds[of_hop == kind] = clocks[kind](part, ranks) if kind in clocks else timing.path_rounds(part)
    if problem.paired:
        inward = of_hop == Shape.IN_TREE
        row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
        height = np.zeros(len(columns), dtype=np.int64)
        np.maximum.at(height, row, rounds + 1)
        deepest = int(height[shape == Shape.IN_TREE].max(initial=0))
        rounds[inward] += deepest - height[row[inward]]
        rounds[~inward] += deepest
    return rounds


@dataclass(frozen=True, slots=True, eq=False)
class Polished:
    """Routes with shares, and how many rounds later than it could each begins.

    Attributes:
        columns: routes; one may stand several times, beginning in different rounds.
        shares: [columns] part of its commodity.
        delay: [columns] rounds.
    """

    columns: Columns
    shares: np.ndarray
    delay: np.ndarray


def polish(
    problem: Problem, columns: Columns, segments: int, *, seed: int, stop: Callable[[], bool]
) -> Polished | None:
    """Shares and delays that make the pipeline fastest, or None where the program is too large or time is up.

    Args:
        problem: what to route.
        columns: candidates, at least one per moving commodity.
        segments: of the pipeline.
        seed: for HiGHS.
        stop: asked during the solve whether to give up.
    """
    rounds = route_rounds(problem, columns)
    depth = int(rounds.max(initial=0)) + 1
    segments = max(segments, depth)
    if depth < 2:
        return None
    columns, rounds, delay = _delayed(problem, columns, rounds, depth)
    ranks, links = problem.routes.ranks, problem.crossing.shape[1]
    size = np.repeat(problem.commodities.size[columns.commodity], np.diff(columns.starts))
    staged = [
        sparse.csr_matrix(
            sparse.csr_matrix((size * (rounds == h), columns.hops, columns.starts), shape=(len(columns), ranks**2))
            @ problem.crossing
        )
        for h in range(depth)
    ]
    blocks = [sum(staged[1:], start=staged[0])]
    for j in range(depth - 1):
        blocks += [sum(staged[1 : j + 1], start=staged[0]), sum(staged[j + 2 :], start=staged[j + 1])]
    for block in blocks:
        block.eliminate_zeros()
    usage = sparse.csr_matrix(sparse.hstack(blocks))
    if usage.nnz > MAX_ENTRIES:
        return None
    scale = max(float(blocks[0].sum(axis=0).max()), 1e-300)
    moving = problem.moving
    row_of = np.full(len(problem.commodities), -1)
    row_of[moving] = usage.shape[1] + np.arange(len(moving))
    target = np.zeros(len(moving)) if problem.paired else np.ones(len(moving))
    lower = np.concatenate([np.full(usage.shape[1], -INFINITY), target, [1.0]])
    upper = np.concatenate([np.zeros(usage.shape[1]), target, [1.0]])
    count = len(lower) if problem.paired else len(lower) - 1
    program = LinearProgram(lower[:count], upper[:count], seed=seed)
    parts = len(blocks)
    costs = np.ones(parts)
    costs[0] = segments - depth + 1
    starts = np.arange(parts + 1) * links
    program.add(costs, starts, np.arange(parts * links), np.full(parts * links, -1.0))
    extra = parts
    if problem.paired:
        halves = len(moving) // 2
        base = usage.shape[1]
        rows = np.stack([base + np.arange(halves), base + halves + np.arange(halves)], axis=1)
        rows = np.concatenate([rows, np.full((halves, 1), base + len(moving))], axis=1)
        program.add(np.zeros(halves), np.arange(halves + 1) * 3, rows.ravel(), np.tile([-1.0, -1.0, 1.0], halves))
        extra += halves
    tagged = sparse.csc_matrix(
        sparse.hstack(
            [
                usage / scale,
                sparse.csr_matrix(
                    (np.ones(len(columns)), (np.arange(len(columns)), row_of[columns.commodity] - usage.shape[1])),
                    shape=(len(columns), len(moving)),
                ),
            ]
        )
    ).tocsr()
    program.add(np.zeros(len(columns)), tagged.indptr, tagged.indices, tagged.data)
    try:
        shares = program.solve(stop, most=MAX_STEPS).columns[extra:]
    except Stopped:
        return None
    used = np.flatnonzero(shares > 1e-9)
    return Polished(columns.take(used), shares[used], delay[used])


def _delayed(
    problem: Problem, columns: Columns, rounds: np.ndarray, depth: int
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """(every column once for each round it may begin in, rounds of their hops, their delays)."""
    if problem.paired or not len(columns):
        return columns, rounds, np.zeros(len(columns), dtype=np.int64)
    room = depth - 1 - np.maximum.reduceat(rounds, columns.starts[:-1])
    which = np.repeat(np.arange(len(columns)), room + 1)
    delay = np.arange(len(which)) - np.repeat(np.cumsum(room + 1) - room - 1, room + 1)
    wider = columns.take(which)
    again = Columns(columns.commodity, columns.starts, rounds).take(which).hops
    return wider, again + np.repeat(delay, np.diff(wider.starts)), delay
