"""The best pipeline of so many rounds and segments, by column generation over routes whose hops have rounds.

In round r of a pipeline those segments move whose hop belongs to one of the rounds r, r - 1, .., r - S + 1: a window.
A window costs what its busiest link takes; in the steady state all windows are the same. The linear program

    minimise sum over windows of their times,   shares of each commodity's routes sum to 1

therefore knows what filling and draining cost, and leaves no link idle then while another is busy. What is missing in
it is found by pricing every hop by the round it runs in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from solver.backend import INFINITY, LinearProgram, Stopped
from solver.bound import Problem
from solver.bound.columns import unseen
from solver.schedule.timed import Pricer, Timed
from solver.schedule.timing import MAX_SEGMENTS

SMOOTHING = 0.5
"""Weight of the prices so far against those of the last program; without it they jump about."""
GAIN = 1e-4
"""A step that gains less, on average over ``PATIENCE`` of them, is not worth another."""
PATIENCE = 4
STEPS = 25
RETIME = 0.1
"""The number of segments follows what suits the routes when it is this far off."""
ENOUGH = 3e-3
"""A schedule this close to what the links need anyway is good enough."""
WORK = 15_000
"""Simplex steps times rows that one program may take, by the square of the ranks: seconds, but the same each time."""
LARGEST = 14_000
"""Programs of more rows are not begun."""


class Windows(NamedTuple):
    """Which rounds' hops run together.

    Attributes:
        low: [windows] first round of each.
        high: [windows] its last.
        times: [windows] how often it comes.
    """

    low: np.ndarray
    high: np.ndarray
    times: np.ndarray

    @classmethod
    def of(cls, depth: int, segments: int) -> Windows:
        """The windows of a pipeline of so many rounds and segments."""
        width = min(segments, depth)
        ends = np.arange(depth + width - 1)
        times = np.ones(len(ends))
        if segments > depth:
            times[depth - 1] = segments - depth + 1
        return cls(np.maximum(ends - width + 1, 0), np.minimum(ends, depth - 1), times)


class Staged(NamedTuple):
    """A fractional schedule.

    Attributes:
        routes: with a share above zero.
        shares: [routes] part of its commodity.
        segments: how many suit it, about.
    """

    routes: Timed
    shares: np.ndarray
    segments: int


class _Solution(NamedTuple):
    """Seconds of all [windows], of one segment times segments; [depth, rows] prices by round; [routes] shares."""

    windows: np.ndarray
    prices: np.ndarray
    shares: np.ndarray


class _Master:
    """The live program, in units of ``scale`` seconds per segment.

    Its columns are the windows, then what each row has carried up to each round (so that a route has one entry per
    hop and row, however many windows that is part of), then an allreduce's roots, then routes.
    """

    def __init__(self, problem: Problem, depth: int, segments: int, *, scale: float, seed: int) -> None:
        self.problem, self.depth, self.scale = problem, depth, scale
        self.windows = windows = Windows.of(depth, segments)
        self.rows = problem.crossing.shape[1]
        count, moving = len(windows.low), len(problem.moving)
        self._carried = count * self.rows
        self._blocks = self._carried + depth * self.rows
        equal = np.concatenate([np.zeros(depth * self.rows), np.full(moving, 0.0 if problem.paired else 1.0)])
        ends = np.ones(1 if problem.paired else 0)
        lower = np.concatenate([np.full(self._carried, -INFINITY), equal, ends])
        upper = np.concatenate([np.zeros(self._carried), equal, ends])
        self._program = LinearProgram(lower, upper, seed=seed)
        self.segments = segments
        every = np.arange(self.rows)
        starts = np.arange(count + 1) * self.rows
        self._program.add(windows.times, starts, np.arange(self._carried), np.full(self._carried, -1.0))
        for round in range(depth):
            own = [(self._carried + round * self.rows, 1.0)]
            own += [(self._carried + (round + 1) * self.rows, -1.0)] if round + 1 < depth else []
            own += [(window * self.rows, 1.0) for window in np.flatnonzero(windows.high == round).tolist()]
            own += [(window * self.rows, -1.0) for window in np.flatnonzero(windows.low == round + 1).tolist()]
            first, value = (np.array(part) for part in zip(*own, strict=True))
            where = (first[None, :] + every[:, None]).ravel()
            starts = np.arange(self.rows + 1) * len(own)
            self._program.add(np.zeros(self.rows), starts, where, np.tile(value, self.rows))
        self._extra = count + depth * self.rows
        self._height, self._left = len(lower), WORK * problem.routes.ranks**2
        if problem.paired:  # one column per root: as much is spread from it as is reduced to it
            roots = moving // 2
            halves = self._blocks + np.arange(roots)
            rows = np.stack([halves, halves + roots, np.full(roots, self._blocks + moving)], axis=1)
            self._program.add(
                np.zeros(roots), np.arange(roots + 1) * 3, rows.ravel(), np.tile([-1.0, -1.0, 1.0], roots)
            )
            self._extra += roots
        self._parts: list[Timed] = []
        self._known: set[tuple[bytes, bytes]] = set()

    def add(self, routes: Timed) -> int:
        """Add those that are new; returns how many."""
        fresh = unseen(routes.keys(), self._known)
        if not len(fresh):
            return 0
        routes = routes.take(fresh)
        problem, moving = self.problem, self.problem.moving
        carried = sparse.hstack(routes.usage(problem, self.depth)) * (-1.0 / self.scale)
        block = np.searchsorted(moving, routes.columns.commodity)
        ones = (np.ones(len(routes)), (np.arange(len(routes)), block))
        entries = sparse.csr_matrix(sparse.hstack([carried, sparse.csr_matrix(ones, (len(routes), len(moving)))]))
        self._program.add(np.zeros(len(routes)), entries.indptr, entries.indices + self._carried, entries.data)
        self._parts.append(routes)
        return len(routes)

    def solve(self, stop: Callable[[], bool]) -> _Solution:
        """The optimum over the routes there are.

        Raises:
            Stopped: it was told to give up, or has taken too many steps.
        """
        solution = self._program.solve(stop, most=max(self._left // self._height, 0))
        self._left -= solution.steps * self._height
        prices = np.maximum(-solution.duals[: self._carried], 0.0).reshape(-1, self.rows)
        by_round = np.zeros((self.depth, self.rows))
        for price, low, high in zip(prices, self.windows.low, self.windows.high, strict=True):
            by_round[low : high + 1] += price
        windows = solution.columns[: len(prices)] * self.scale
        return _Solution(windows, by_round, solution.columns[self._extra :])

    def set_segments(self, segments: int) -> None:
        """Another number of segments, no smaller than the number of rounds, as the present one."""
        self.segments = segments
        self.windows = Windows.of(self.depth, segments)
        self._program.reprice(self.depth - 1, float(segments - self.depth + 1))

    def routes(self) -> Timed:
        """All that were added."""
        return Timed.join(self._parts)


def staged(
    problem: Problem,
    depth: int,
    segments: int,
    start: Timed,
    *,
    scale: float,
    wait: float,
    seed: int,
    stop: Callable[[], bool],
    steps: int = STEPS,
    patience: int = PATIENCE,
    enough: float = ENOUGH,
) -> Staged | None:
    """Shares of routes and rounds that make the pipeline fastest.

    Args:
        problem: what to route.
        depth: rounds of one segment (for an allreduce an even number).
        segments: of the pipeline.
        start: routes to begin with.
        scale: seconds the links need anyway.
        wait: seconds that every round takes besides.
        seed: for HiGHS.
        stop: asked during the solve whether to give up.
        steps: programs to solve at most.
        patience: steps over which too little is gained before it ends.
        enough: part over ``scale`` at which it ends.

    Returns:
        The best found; None where it was told to stop before there was anything.
    """
    windows = Windows.of(depth, segments)
    if problem.crossing.shape[1] * (depth + len(windows.low)) + len(problem.moving) > LARGEST:
        return None
    master = _Master(problem, depth, segments, scale=scale, seed=seed)
    price = Pricer(problem, depth)
    smooth = np.ones((depth, problem.crossing.shape[1]))
    master.add(start)
    if stop():
        return None
    master.add(price(smooth, Timed.join([])))
    times: list[float] = []
    shares = np.zeros(0)
    try:
        for step in range(steps):
            solution = master.solve(stop)
            shares = solution.shares
            times.append(_retimed(master, solution.windows, wait))
            slow = step >= patience and times[step - patience] < times[step] * (1 + GAIN * patience)
            if slow or times[step] <= scale * (1 + enough):
                break
            smooth = SMOOTHING * smooth + (1 - SMOOTHING) * solution.prices if step else solution.prices
            used = np.flatnonzero(shares > 1e-9)
            used = used[np.argsort(-shares[used], kind="stable")]
            if not master.add(price(smooth, master.routes().take(used))):
                break
    except Stopped:
        pass
    if not len(shares):
        return None
    used = np.flatnonzero(shares > 1e-9)
    return Staged(master.routes().take(used), shares[used], master.segments)


def _retimed(master: _Master, windows: np.ndarray, wait: float) -> float:
    """Give the pipeline the number of segments that suits it; returns the seconds it takes with those."""
    depth, segments = master.depth, master.segments
    if segments < depth:
        return float(windows.sum()) / segments + (segments + depth - 1) * wait
    steady = windows[depth - 1]
    fill = max(float(windows.sum() - depth * steady), 0.0)  # what filling and draining adds, of one segment
    best = min(max(round((fill / wait) ** 0.5), depth), MAX_SEGMENTS) if wait else MAX_SEGMENTS
    if abs(best - segments) > RETIME * segments:
        master.set_segments(best)
    return float(steady) + fill / master.segments + (master.segments + depth - 1) * wait
