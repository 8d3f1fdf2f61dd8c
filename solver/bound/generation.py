"""Column generation: the best use of all links, found by adding one cheapest route per commodity at a time.

The master program is

    minimise T   subject to   shares of each commodity's routes sum to 1,   every link is busy for at most T.

Its dual prices say which routes are missing; the same prices prove a lower bound (Lagrange), so the run stops when
bound and T meet. Prices are smoothed towards the best ones so far, which needs far fewer rounds.
Sources: Gilmore and Gomory, 1961; Wentges, "Weighted Dantzig-Wolfe decomposition", 1997.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.backend import INFINITY, Cancel, LinearProgram, LinearSolution
from solver.bound.columns import Columns, unseen
from solver.bound.descent import descend
from solver.bound.pricing import Improver, Pricer, cheapest
from solver.bound.problem import Problem
from solver.bound.weights import balanced

TOLERANCE = 1e-4
WARM_UP = 8
"""Steps of multiplicative weights before the first linear program, .."""
WARM_COLUMNS = 8_000
""".. fewer where they would give it more columns than this: it would take longer then than all further steps."""
LARGE = 256
"""Beyond so many ranks pricing is dearer than the linear program."""
PATIENCE = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fractional:
    """A fractional optimum, or the best found in time.

    Attributes:
        columns: routes with a share above zero.
        shares: [columns] part of its commodity that takes each route.
        seconds: time the busiest link needs.
        bound: seconds that ``prices`` prove.
        prices: [rows] price of one second of each row; they sum to 1.
        pool: every column seen, to start a similar problem from.
        optimal: whether seconds and bound met.
    """

    columns: Columns
    shares: np.ndarray
    seconds: float
    bound: float
    prices: np.ndarray
    pool: Columns
    optimal: bool


class Master:
    """The live master program, in units of ``scale`` seconds."""

    def __init__(self, problem: Problem, *, scale: float, seed: int) -> None:
        self.problem = problem
        self.scale = scale
        moving = problem.moving
        self.rows = problem.rows
        self.row_of = np.full(len(problem.commodities), -1)
        self.row_of[moving] = self.rows + np.arange(len(moving))
        target = np.zeros(len(moving)) if problem.paired else np.ones(len(moving))
        lower = np.concatenate([np.full(self.rows, -INFINITY), target, [1.0]])
        upper = np.concatenate([np.zeros(self.rows), target, [1.0]])
        size = len(lower) if problem.paired else len(lower) - 1
        self._program = LinearProgram(lower[:size], upper[:size], seed=seed)
        self._program.add(np.ones(1), np.array([0, self.rows]), np.arange(self.rows), np.full(self.rows, -1.0))
        self._extra = 1
        if problem.paired:  # one column per root: as much is spread from it as is reduced to it
            ranks = len(moving) // 2
            rows = np.stack([self.rows + np.arange(ranks), self.rows + ranks + np.arange(ranks)], axis=1)
            rows = np.concatenate([rows, np.full((ranks, 1), self.rows + len(moving))], axis=1)
            values = np.tile([-1.0, -1.0, 1.0], ranks)
            self._program.add(np.zeros(ranks), np.arange(ranks + 1) * 3, rows.ravel(), values)
            self._extra += ranks
        self.parts: list[Columns] = []
        self._known: set[bytes] = set()

    def add(self, columns: Columns) -> int:
        """Add those that are new; returns how many."""
        fresh = unseen(columns.keys(), self._known)
        if not len(fresh):
            return 0
        columns = columns.take(fresh)
        self._program.add(np.zeros(len(columns)), *columns.entries(self.problem, self.row_of, self.scale))
        self.parts.append(columns)
        return len(columns)

    def solve(self, stop: Cancel) -> tuple[LinearSolution, np.ndarray, np.ndarray]:
        """(solution, [rows] prices that sum to 1, [columns added] shares)."""
        solution = self._program.solve(stop)
        prices = np.maximum(-solution.duals[: self.rows], 0.0)
        return solution, prices / max(prices.sum(), 1e-300), solution.columns[self._extra :]


def proven(problem: Problem, costs: np.ndarray, prices: np.ndarray) -> float:
    """Seconds that prices prove, given the cheapest price per byte of every moving commodity."""
    needed = problem.commodities.size[problem.moving] * costs
    total = needed.reshape(2, -1).sum(axis=0).min() if problem.paired else needed.sum()
    return float(total / prices.sum())


def generate(
    problem: Problem,
    *,
    deadline: float = float("inf"),
    tolerance: float = TOLERANCE,
    seed: int = 0,
    pricer: Pricer = cheapest,
    second: Pricer | None = None,
    improver: Improver | None = None,
    start: Columns | None = None,
    warm_up: int = WARM_UP,
    patience: int = PATIENCE,
    known_bound: float = 0.0,
    known_prices: np.ndarray | None = None,
    cancel: Cancel = lambda: False,
    progress: Callable[[str], None] = lambda line: None,
) -> Fractional:
    """Solve the linear program.

    Args:
        problem: what to route.
        deadline: ``time.monotonic()`` at which to stop with what there is.
        tolerance: relative distance of time and bound at which to stop.
        seed: for HiGHS.
        pricer: where columns come from; other than ``cheapest``, their prices prove nothing.
        second: another pricer, whose columns join at the beginning.
        improver: makes columns from those in use, which join in every step.
        start: columns to begin with.
        warm_up: steps of multiplicative weights before the first program; fewer on large machines.
        patience: steps in a row that may bring less than ``tolerance`` before an inexact pricer is given up.
        known_bound: seconds already proven for this problem.
        known_prices: the prices that prove it; the search starts there.
        cancel: asked after every step whether to stop.
        progress: told about every step.
    """
    if not len(problem.moving):
        nothing = np.zeros(0)
        prices = even_prices(problem)
        return Fractional(
            columns=Columns.none(),
            shares=nothing,
            seconds=0.0,
            bound=0.0,
            prices=prices,
            pool=Columns.none(),
            optimal=True,
        )

    def stop() -> bool:
        return time.monotonic() > deadline or cancel()

    exact = pricer is cheapest
    rows = problem.rows
    best_prices = even_prices(problem) if known_prices is None else known_prices
    warm_up = min(warm_up, max(WARM_COLUMNS // len(problem.moving), 1))
    warm = warm_up if problem.routes.ranks <= LARGE else min(warm_up, 2)
    best_bound = known_bound
    columns, costs = pricer(problem, best_prices)
    scale = max(float(columns.usage(problem).sum(axis=0).max()), 1e-300)
    master = Master(problem, scale=scale, seed=seed)
    if exact:
        best_bound = max(best_bound, proven(problem, costs, best_prices))
    for batch in (
        columns,
        *_warm_up(problem, columns, pricer, steps=warm, stop=stop),
        *([] if start is None else [start]),
    ):
        master.add(batch)
    if second is not None:
        columns, _ = second(problem, best_prices)
        for batch in (columns, *_warm_up(problem, columns, second, steps=warm, stop=stop)):
            master.add(batch)
    shares, step = np.zeros(0), 0

    def solve() -> tuple[float, np.ndarray]:
        nonlocal shares
        solution, prices, shares = master.solve(stop)
        return solution.objective * scale, prices

    def price(prices: np.ndarray) -> tuple[float, int]:
        columns, costs = pricer(problem, prices)
        added = master.add(columns)
        if improver is not None:
            used = np.flatnonzero(shares > 1e-9)
            used = used[np.argsort(-shares[used], kind="stable")]
            added += master.add(improver(problem, prices, Columns.join(master.parts).take(used)))
        return proven(problem, costs, prices) if exact else 0.0, added

    def tell(seconds: float, bound: float) -> None:
        nonlocal step
        step += 1
        progress(f"step {step}: {seconds:.6g} s, bound {bound:.6g} s")

    best_bound, best_prices = descend(
        solve,
        price,
        exact=exact,
        bound=best_bound,
        prices=best_prices,
        tolerance=tolerance,
        patience=patience,
        stop=stop,
        tell=tell,
    )
    pool = Columns.join(master.parts)
    # there may have been no time for even one program
    shares = np.append(shares, np.zeros(len(pool) - len(shares))) if step else balanced([problem], [pool])[0]
    used = np.flatnonzero(shares > 1e-9)
    usage = pool.take(used).usage(problem)
    busiest = float((usage.T @ shares[used]).max()) if rows else 0.0
    return Fractional(
        columns=pool.take(used),
        shares=shares[used],
        seconds=busiest,
        bound=best_bound,
        prices=best_prices,
        pool=pool,
        optimal=busiest <= best_bound * (1 + 2 * tolerance),
    )


def even_prices(problem: Problem) -> np.ndarray:
    """Equal prices on all links that some route crosses."""
    used = np.zeros(problem.rows)
    used[problem.crossed] = 1.0
    if problem.group is not None:
        used *= np.bincount(problem.group.link_orbit)
    return np.asarray(used / max(used.sum(), 1.0))


def _warm_up(problem: Problem, columns: Columns, pricer: Pricer, *, steps: int, stop: Cancel) -> list[Columns]:
    """Columns from a few steps of multiplicative weights, which cost no linear program.

    Source: Young, "Randomized rounding without solving the linear program", 1995.
    """
    found: list[Columns] = []
    load = np.zeros(problem.rows)
    even = even_prices(problem)
    for step in range(1, steps + 1):
        if stop():
            break
        load += np.asarray(columns.usage(problem).sum(axis=0)).ravel()
        prices = even * np.exp(4.0 * (load / load.max() - 1.0) * min(step, 4) / 2)
        columns, _ = pricer(problem, prices / prices.sum())
        found.append(columns)
    return found
