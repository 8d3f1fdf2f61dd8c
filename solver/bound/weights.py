"""Shares of routes without a linear program: good ones at once, where there is no time for the best.

Source: Frank and Wolfe, "An algorithm for quadratic programming", 1956, on the soft maximum of the links' loads, whose
gradient are multiplicative weights: each step every commodity moves some of its share to the route now cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from solver.bound.columns import Columns
from solver.bound.problem import Problem

STEPS = 200
SHARPNESS = 20.0
"""A link that is idle costs e to the minus this of what the busiest costs."""


def balanced(problems: Sequence[Problem], pools: Sequence[Columns]) -> list[np.ndarray]:
    """Shares of given columns that leave the busiest link little over the least possible with them.

    Args:
        problems: that share the links, with the same rows.
        pools: columns of each; every commodity that moves has some.

    Returns:
        for each problem the [columns] part of its commodity that takes each; of an allreduce, of everything.
    """
    usages = [pool.usage(problem) for problem, pool in zip(problems, pools, strict=True)]
    loads = [sparse.csr_matrix(usage.T) for usage in usages]
    choices = [_Choice(problem, pool) for problem, pool in zip(problems, pools, strict=True)]
    shares = [np.zeros(len(pool)) for pool in pools]
    prices = np.ones(problems[0].rows)
    least, best = np.inf, shares
    for step in range(STEPS):
        moved = 2.0 / (step + 2)
        shares = [share * (1 - moved) for share in shares]
        for share, choice, usage in zip(shares, choices, usages, strict=True):
            share[choice.cheapest(usage @ prices)] += moved
        load = np.sum([back @ share for back, share in zip(loads, shares, strict=True)], axis=0)
        busiest = float(load.max(initial=0.0))
        if busiest < least:
            least, best = busiest, [share.copy() for share in shares]
        prices = np.exp(SHARPNESS * (load / max(busiest, 1e-300) - 1.0))
    return best


class _Choice:
    """The cheapest column of each commodity; of an allreduce, the two of the root whose trees cost least together."""

    def __init__(self, problem: Problem, pool: Columns) -> None:
        self._order = np.argsort(pool.commodity, kind="stable")
        label = pool.commodity[self._order]
        self._first = np.flatnonzero(np.diff(label, prepend=-1))
        self._group = np.cumsum(np.diff(label, prepend=-1) > 0) - 1
        self._paired = problem.paired

    def cheapest(self, cost: np.ndarray) -> np.ndarray:
        """Positions of the columns.

        Args:
            cost: [columns] price of each.
        """
        if not len(cost):
            return np.zeros(0, dtype=np.int64)
        sorted_cost = cost[self._order]
        least = np.minimum.reduceat(sorted_cost, self._first)
        among = np.where(sorted_cost <= least[self._group], np.arange(len(cost)), len(cost))
        chosen = self._order[np.minimum.reduceat(among, self._first)]
        if not self._paired:
            return np.asarray(chosen)
        root = int(np.argmin(least.reshape(2, -1).sum(axis=0)))
        return np.asarray(chosen[[root, root + len(chosen) // 2]])
