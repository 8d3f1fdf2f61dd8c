"""How deep a pipeline should be: what is known and guessed about each depth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.bound import Columns, Fractional, Problem, Shape
from solver.bound.generation import even_prices
from solver.bound.shallow import farthest, limited
from solver.schedule.timing import MAX_SEGMENTS

FILL = {Shape.PATH: 0.05, Shape.OUT_TREE: 0.35, Shape.IN_TREE: 0.35}
"""What each round but one adds to the time of a segment by filling and draining, as measured on the catalog's machines;
half of it where in-trees and out-trees follow each other."""
LOOKS = 8
"""A depth is looked at so often before it is tried."""
SHRINKS = 6
"""One more round takes away at most so large a part of what too little depth costs, as measured there."""
MET = 1e-3
"""A depth whose links need no more than this over the bound costs nothing."""


class Depths:
    """Guesses of the time that pipelines of each depth take.

    Args:
        problem: what to schedule.
        fractional: the optimum without a limit.
        deepest: of its routes.
        wait: seconds that every round takes besides.
        seed: for the search for trees.
        stop: asked now and then whether to look at no more depths.
    """

    def __init__(
        self,
        problem: Problem,
        fractional: Fractional,
        deepest: int,
        *,
        wait: float,
        seed: int,
        stop: Callable[[], bool],
    ) -> None:
        self.halves = 2 if problem.paired else 1
        self.wait, self._least = wait, fractional.seconds
        self._slope = FILL[Shape(problem.commodities.shape[0])] / self.halves
        self._seconds = _seen_by_prices(problem, fractional, deepest, seed, stop)
        if problem.demand.collective.rooted:
            self._look_closer(problem, fractional, seed, stop)

    def _look_closer(self, problem: Problem, fractional: Fractional, seed: int, stop: Callable[[], bool]) -> None:
        """Look again at what seems best, at other prices each time, until that has been seen often enough.

        Half of the prices are those of the optimum, half what the trees so far, on average, load each link with.
        """
        even, known = even_prices(problem), fractional.prices / fractional.prices.sum()
        prices, loads = dict.fromkeys(self._seconds, known), dict.fromkeys(self._seconds, np.zeros(len(known)))
        looks = dict.fromkeys(self._seconds, 0)
        while looks[depth := min(self._seconds, key=self.guess)] < LOOKS and not stop():
            looks[depth] += 1
            columns, costs = limited(depth, seed=seed)(problem, prices[depth])
            self._seconds[depth] = max(self._seconds[depth], _needed(problem, columns, costs))
            loads[depth] = loads[depth] + np.asarray(columns.usage(problem).mean(axis=0)).ravel()
            load = even * loads[depth]
            prices[depth] = (known + load / load.sum()) / 2

    def guess(self, depth: int) -> tuple[float, int]:
        """(seconds, segments) of a pipeline of such a depth."""
        rounds, seconds = depth * self.halves, self._seconds[depth]
        fill = self._slope * (rounds - 1) * seconds
        segments = max(1, round((fill / self.wait) ** 0.5)) if self.wait else MAX_SEGMENTS
        return seconds + fill / segments + (segments + rounds - 1) * self.wait, segments

    def best(self) -> int | None:
        """The depth that looks fastest, None where all are left out."""
        return min(self._seconds, key=self.guess, default=None)

    def leave_out(self, depth: int) -> None:
        """Look at this depth no more."""
        del self._seconds[depth]

    def learn(self, depth: int, seconds: float) -> None:
        """Note what the links need with trees of a depth; little more depth does no wonders then, but to depth 1."""
        self._seconds[depth] = seconds
        if depth == 1:
            return
        for deeper in range(depth + 1, max(self._seconds) + 1):
            excess = (self._seconds[deeper - 1] - self._least) / SHRINKS
            self._seconds[deeper] = max(self._seconds[deeper], self._least + excess)


def _seen_by_prices(
    problem: Problem, fractional: Fractional, deepest: int, seed: int, stop: Callable[[], bool]
) -> dict[int, float]:
    """By depth, seconds that the links need at least, as far as the prices of the optimum see it."""
    found: dict[int, float] = {}
    for depth in range(farthest(problem), max(deepest, farthest(problem)) + 1):
        if found and (found[depth - 1] <= fractional.bound * (1 + MET) or stop()):
            found[depth] = found[depth - 1]
            continue
        columns, costs = limited(depth, seed=seed)(problem, fractional.prices)
        found[depth] = max(_needed(problem, columns, costs), fractional.seconds)
    return found


def _needed(problem: Problem, columns: Columns, costs: np.ndarray) -> float:
    """Seconds that prices which sum to 1 prove, as far as some routes, priced by the byte, are the cheapest."""
    cheapest = np.full(len(problem.commodities), np.inf)
    np.minimum.at(cheapest, columns.commodity, costs)
    total = problem.commodities.size[problem.moving] * cheapest[problem.moving]
    return float(total.reshape(2, -1).sum(axis=0).min() if problem.paired else total.sum())
