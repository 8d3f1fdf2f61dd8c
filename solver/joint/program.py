"""One linear program for several demands: each has routes of its own, the links and the finishing time are shared.

    minimise T   subject to   shares of each commodity's routes sum to 1,   for each link: all demands' use <= T.

The prices of the links are common, so each demand is priced as it is alone, and what the prices prove adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.backend import INFINITY, Cancel, LinearProgram
from solver.bound import Columns, Fractional, Problem
from solver.bound.columns import unseen
from solver.bound.descent import descend
from solver.bound.generation import TOLERANCE, proven
from solver.bound.pricing import Pricer, cheapest
from solver.bound.weights import balanced

PATIENCE = 4
"""An inexact pricer is given up when so many steps in a row bring less than the tolerance."""
WARM_UP = 4
"""Steps of multiplicative weights before the first linear program."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shared:
    """A fractional optimum of all demands together.

    Attributes:
        parts: each demand's routes and shares; their ``seconds`` are those of the busiest link of all together.
        seconds: time the busiest link needs.
        bound: seconds that ``prices`` prove.
        prices: [links] price of one second of each link; they sum to 1.
    """

    parts: tuple[Fractional, ...]
    seconds: float
    bound: float
    prices: np.ndarray


class _Master:
    """The live program, in units of ``scale`` seconds."""

    def __init__(self, problems: Sequence[Problem], scale: float, seed: int) -> None:
        self.problems, self.scale = problems, scale
        self.links = len(problems[0].routes.topology.links)
        lower, upper = [np.full(self.links, -INFINITY)], [np.zeros(self.links)]
        self._row_of: list[np.ndarray] = []
        first = self.links
        for problem in problems:
            moving = problem.moving
            row_of = np.full(len(problem.commodities), -1)
            row_of[moving] = first + np.arange(len(moving))
            self._row_of.append(row_of)
            # of an allreduce as much goes into each root as out of it, and over all roots everything
            target = np.append(np.zeros(len(moving)), 1.0) if problem.paired else np.ones(len(moving))
            lower.append(target)
            upper.append(target)
            first += len(target)
        self._program = LinearProgram(np.concatenate(lower), np.concatenate(upper), seed=seed)
        self._program.add(np.ones(1), np.array([0, self.links]), np.arange(self.links), np.full(self.links, -1.0))
        self._columns = 1
        for problem, row_of in zip(problems, self._row_of, strict=True):
            if problem.paired:
                halves = len(problem.moving) // 2
                base = int(row_of[problem.moving[0]])
                rows = base + np.stack(
                    [np.arange(halves), halves + np.arange(halves), np.full(halves, 2 * halves)], axis=1
                )
                values = np.tile([-1.0, -1.0, 1.0], halves)
                self._program.add(np.zeros(halves), np.arange(halves + 1) * 3, rows.ravel(), values)
                self._columns += halves
        self.pools: list[Columns] = [Columns.none() for _ in problems]
        self._places: list[np.ndarray] = [np.zeros(0, dtype=np.int64) for _ in problems]
        self._known: list[set[bytes]] = [set() for _ in problems]

    def add(self, number: int, columns: Columns) -> int:
        """Add those columns of one demand that are new; returns how many."""
        fresh = unseen(columns.keys(), self._known[number])
        if not len(fresh):
            return 0
        columns = columns.take(fresh)
        entries = columns.entries(self.problems[number], self._row_of[number], self.scale)
        self._program.add(np.zeros(len(columns)), *entries)
        self.pools[number] = Columns.join([self.pools[number], columns])
        self._places[number] = np.append(self._places[number], self._columns + np.arange(len(columns)))
        self._columns += len(columns)
        return len(columns)

    def solve(self, stop: Cancel) -> tuple[float, np.ndarray, list[np.ndarray]]:
        """(seconds, [links] prices that sum to 1, shares of each demand's pool)."""
        solution = self._program.solve(stop)
        prices = np.maximum(-solution.duals[: self.links], 0.0)
        shares = [solution.columns[places] for places in self._places]
        return solution.objective * self.scale, prices / max(prices.sum(), 1e-300), shares


def share(
    problems: Sequence[Problem],
    *,
    pricer: Callable[[int], Pricer] = lambda number: cheapest,
    start: Sequence[Columns] | None = None,
    known_bound: float = 0.0,
    known_prices: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    stop: Cancel = lambda: False,
) -> Shared:
    """Solve the program by column generation.

    Args:
        problems: without symmetries, on one topology.
        pricer: where each demand's columns come from; other than ``cheapest``, their prices prove nothing.
        start: columns of each demand to begin with.
        known_bound: seconds already proven.
        known_prices: the prices that prove it.
        tolerance: relative distance of time and bound at which to stop.
        seed: for HiGHS.
        stop: asked after every step whether to stop with what there is.
    """
    pricers = [pricer(number) for number in range(len(problems))]
    exact = all(one is cheapest for one in pricers)
    best_prices = _even_prices(problems) if known_prices is None else known_prices
    best_bound = known_bound
    first = [_priced(problem, one, best_prices) for problem, one in zip(problems, pricers, strict=True)]
    if exact:
        best_bound = max(best_bound, sum(bound for _, bound in first))
    load = _load(problems, [columns for columns, _ in first])
    master = _Master(problems, max(float(np.max(load)), 1e-300), seed)
    batches = [[columns for columns, _ in first], *([list(start)] if start is not None else [])]
    for step in range(1, WARM_UP + 1):
        if stop():
            break
        prices = best_prices * np.exp(4.0 * (load / np.max(load) - 1.0) * step / 2)
        batch = [_priced(p, one, prices / prices.sum())[0] for p, one in zip(problems, pricers, strict=True)]
        load += _load(problems, batch)
        batches.append(batch)
    for batch in batches:
        for number, columns in enumerate(batch):
            master.add(number, columns)
    shares: list[np.ndarray] | None = None

    def solve() -> tuple[float, np.ndarray]:
        nonlocal shares
        seconds, prices, shares = master.solve(stop)
        return seconds, prices

    def price(prices: np.ndarray) -> tuple[float, int]:
        priced = [_priced(problem, one, prices) for problem, one in zip(problems, pricers, strict=True)]
        added = sum(master.add(number, columns) for number, (columns, _) in enumerate(priced))
        return sum(part for _, part in priced), added

    best_bound, best_prices = descend(
        solve,
        price,
        exact=exact,
        bound=best_bound,
        prices=best_prices,
        tolerance=tolerance,
        patience=PATIENCE,
        stop=stop,
    )
    if shares is None:  # there was no time for even one program
        shares = balanced(problems, master.pools)
    return _shared(problems, master.pools, shares, best_bound, best_prices)


def _load(problems: Sequence[Problem], batch: Sequence[Columns]) -> np.ndarray:
    """[links] seconds each is busy when every column carries a whole commodity."""
    load = np.zeros(len(problems[0].routes.topology.links))
    for problem, columns in zip(problems, batch, strict=True):
        load += np.asarray(columns.usage(problem).sum(axis=0)).ravel()
    return load


def _priced(problem: Problem, pricer: Pricer, prices: np.ndarray) -> tuple[Columns, float]:
    """(columns, seconds that the prices prove for this demand's part; none where the columns are not the cheapest)."""
    if not len(problem.moving):
        return Columns.none(), 0.0
    columns, costs = pricer(problem, prices)
    return columns, proven(problem, costs, prices) if pricer is cheapest else 0.0


def _shared(
    problems: Sequence[Problem],
    pools: Sequence[Columns],
    shares: Sequence[np.ndarray],
    bound: float,
    prices: np.ndarray,
) -> Shared:
    load = np.zeros(len(prices))
    kept = []
    for problem, pool, part in zip(problems, pools, shares, strict=True):
        part = np.append(part, np.zeros(len(pool) - len(part)))
        used = np.flatnonzero(part > 1e-9)
        kept.append((pool.take(used), part[used], pool))
        load += np.asarray(kept[-1][0].usage(problem).T @ part[used]).ravel()
    seconds = float(load.max(initial=0.0))
    parts = tuple(
        Fractional(columns=columns, shares=part, seconds=seconds, bound=bound, prices=prices, pool=pool, optimal=False)
        for columns, part, pool in kept
    )
    return Shared(parts=parts, seconds=seconds, bound=bound, prices=prices)


def _even_prices(problems: Sequence[Problem]) -> np.ndarray:
    """Equal prices on all links that some route crosses."""
    used = np.zeros(len(problems[0].routes.topology.links))
    for problem in problems:
        used[np.unique(problem.crossing.indices)] = 1.0
    return np.asarray(used / max(used.sum(), 1.0))
