"""Local search: exchange two GPUs between groups (or with one that stays out) while the slowest group gets faster.

Link prices of partitions that were priced before bound every swap without a linear program, so only promising swaps
are priced.
"""

from __future__ import annotations

import numpy as np

from solver.groups.pricing import Price, price
from solver.groups.problem import Groups, Problem, canonical
from synth.collective.cheapest import shortest_paths

MOST_PRICED = 40


def improve(problem: Problem, start: Groups, cost: Price, *, most: int = MOST_PRICED) -> tuple[Groups, Price]:
    """Swap until nothing helps or ``most`` partitions were priced."""
    groups = start
    distances: list[np.ndarray] = []
    _learn(problem, cost, distances)
    for _ in range(most):
        if not distances:
            break
        found = _best_swap(problem, groups, distances, cost.seconds)
        if found is None:
            break
        new = price(problem, found)
        _learn(problem, new, distances)
        if new.seconds < cost.seconds * (1 - 1e-9):
            groups, cost = found, new
        elif new.lengths is None:
            break  # not connected, and no price that would keep it from being proposed again
    return groups, cost


def _learn(problem: Problem, cost: Price, distances: list[np.ndarray]) -> None:
    """Add [gpus, gpus] seconds that a block from each to each other (both ways) adds under these link prices."""
    if cost.lengths is None:
        return
    one_way = shortest_paths(problem.routes.hop_weights(cost.lengths)) * problem.block
    distances.append(one_way + one_way.T)


def _best_swap(problem: Problem, groups: Groups, distances: list[np.ndarray], seconds: float) -> Groups | None:
    """The swap whose bound is lowest, if it is below the time now."""
    gpus = len(problem.gpus)
    group = np.full(gpus, len(groups))
    for number, members in enumerate(groups):
        group[list(members)] = number
    inside = np.zeros((gpus, len(groups) + 1))
    inside[np.arange(gpus), group] = 1
    inside[:, -1] = 0.0  # GPUs that stay out exchange nothing
    bound = np.zeros((gpus, gpus))
    for both in distances:
        to_group = both @ inside
        total = float((to_group * inside).sum()) / 2
        own = to_group[np.arange(gpus), group]
        leave = to_group[:, group] - own[:, None]  # [i, j]: i goes to j's group
        meet = np.where((group[:, None] < len(groups)) & (group < len(groups)), 2.0, 1.0)
        change = leave + leave.T - meet * both
        np.maximum(bound, total + change, out=bound)
    bound[group[:, None] == group] = np.inf
    a, b = np.unravel_index(int(bound.argmin()), bound.shape)
    if not bound[a, b] < seconds * (1 - 1e-6):
        return None
    group[a], group[b] = group[b], group[a]
    return canonical([tuple(np.flatnonzero(group == number).tolist()) for number in range(len(groups))])
