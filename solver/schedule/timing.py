"""When the hops of a route can run, and how many segments make them overlap best."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from solver.bound import Columns, Problem, Shape
from solver.schedule.timed import Timed

MAX_SEGMENTS = 4096


def path_rounds(columns: Columns) -> np.ndarray:
    """[hops] position of each hop in its path."""
    return np.asarray(np.arange(len(columns.hops)) - np.repeat(columns.starts[:-1], np.diff(columns.starts)))


def out_tree_rounds(columns: Columns, ranks: int) -> np.ndarray:
    """[hops] depth of each hop's sender: the earliest round it can run in."""
    row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    src, dst = row * ranks + columns.hops // ranks, row * ranks + columns.hops % ranks
    depth = np.zeros(len(columns) * ranks, dtype=np.int64)
    for _ in range(ranks + 1):
        deeper = depth[src] + 1
        if (deeper == depth[dst]).all():
            return np.asarray(depth[src])
        depth[dst] = deeper
    raise AssertionError("a route that should be a tree has a cycle")


def in_tree_rounds(columns: Columns, ranks: int) -> np.ndarray:
    """[hops] the latest round in which each hop can run when its tree has as many rounds as it is deep.

    This mirrors :func:`out_tree_rounds`: what spreads early in one direction is gathered late in the other.
    """
    mirrored = Columns(columns.commodity, columns.starts, columns.hops % ranks * ranks + columns.hops // ranks)
    rounds = out_tree_rounds(mirrored, ranks)
    if not len(rounds):
        return rounds
    row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    return np.asarray(np.maximum.reduceat(rounds, columns.starts[:-1])[row] - rounds)


def earliest(problem: Problem, columns: Columns) -> Timed:
    """The routes, every hop as early as its route allows; in-trees as late as in as many rounds as they are deep."""
    shape = problem.commodities.shape[columns.commodity]
    of_hop = np.repeat(shape, np.diff(columns.starts))
    rounds = np.zeros(len(columns.hops), dtype=np.int64)
    for kind in Shape:
        mine = np.flatnonzero(shape == kind)
        if not len(mine):
            continue
        part = columns.take(mine)
        match kind:
            case Shape.PATH:
                rounds[of_hop == kind] = path_rounds(part)
            case Shape.OUT_TREE:
                rounds[of_hop == kind] = out_tree_rounds(part, problem.routes.ranks)
            case Shape.IN_TREE:
                rounds[of_hop == kind] = in_tree_rounds(part, problem.routes.ranks)
    return Timed(columns, rounds)


class Pipeline:
    """The rounds model of one schedule, ready to be asked for any number of segments.

    Args:
        problem: routes and rates.
        round: [transfers] round of segment 0.
        pair: [transfers] row of each route.
        size: [transfers] bytes of the whole chunk, with those of its images.
        launch_ns: cost of starting one round.
    """

    def __init__(
        self, problem: Problem, round: np.ndarray, pair: np.ndarray, size: np.ndarray, launch_ns: float
    ) -> None:
        self.depth = int(round.max(initial=-1)) + 1
        sent = sparse.csr_matrix((size, (round, pair)), shape=(self.depth, problem.routes.ranks**2))
        load = (sent @ problem.crossing).toarray()
        load = load[:, load.any(axis=0)]
        self._before = np.concatenate([np.zeros((1, load.shape[1])), np.cumsum(load, axis=0)])
        self._latency = np.full(self.depth, -1.0)
        np.maximum.at(self._latency, round, problem.routes.latency_ns.ravel()[pair] * 1e-9)
        self._launch = launch_ns * 1e-9

    def seconds(self, segments: int) -> float:
        """Time of the plan with so many segments."""
        depth = self.depth
        if not depth:
            return 0.0
        ends = np.arange(depth + min(segments, depth) - 1)  # rounds, the steady ones counted once
        times = np.ones(len(ends))
        window = min(segments, depth)
        low, high = np.maximum(ends - window + 1, 0), np.minimum(ends, depth - 1)
        if segments > depth:
            times[depth - 1] = segments - depth + 1
        busiest = (self._before[high + 1] - self._before[low]).max(axis=1, initial=0.0) / segments
        latency = np.array([self._latency[a : b + 1].max() for a, b in zip(low, high, strict=True)])
        return float((times * (busiest + latency + self._launch))[latency >= 0].sum())

    def best(self, most: int = MAX_SEGMENTS) -> tuple[int, float]:
        """(segments, seconds) of the best number of segments; the fewest among equals."""
        if self.depth <= 1:
            return 1, self.seconds(1)
        grid = sorted({round(1.25**power) for power in range(60) if 1.25**power <= most} | {most})
        times: dict[int, float] = {}
        for segments in grid:
            times[segments] = self.seconds(segments)
            if segments > 8 and times[segments] > 3 * min(times.values()):
                break
        best = min(times, key=lambda s: (times[s], s))
        step = max(best // 8, 1)
        while step:
            near = [s for s in (best - step, best + step) if 1 <= s <= most and s not in times]
            times |= {s: self.seconds(s) for s in near}
            better = min(times, key=lambda s: (times[s], s))
            step = step if better != best else step // 2
            best = better
        return best, times[best]
