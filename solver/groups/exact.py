"""The optimal partition of few GPUs, by cuts.

The link prices of one priced partition bound all others: with lengths scaled so that sum(length x rate) = 1, a
partition takes at least the sum over its groups of (block x shortest distances inside the group). So: list the
groups and the partitions, keep for each partition the largest bound seen, price the partition with the smallest bound,
learn its prices, and stop when no bound is below the best price. This is Benders' decomposition (1962) with the master
problem solved by enumeration; where partitions are too many to list, by :mod:`solver.groups.master`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb, factorial

import numpy as np

from solver.groups.pricing import connected, price
from solver.groups.problem import Groups, Problem

MOST_PARTITIONS = 3_000_000
MOST_PRICED = 400
SLAB = 1_000_000
"""Cells of a table that are held at once while partitions are listed."""
CLOSE = 1e-7


@dataclass(frozen=True, slots=True)
class Found:
    """A partition and what is known of it.

    Attributes:
        groups: the partition.
        seconds: its price.
        bound: no partition is faster than this.
        priced: partitions that were priced on the way.
    """

    groups: Groups
    seconds: float
    bound: float
    priced: int


def partitions_count(gpus: int, size: int) -> int:
    """How many partitions there are, the choice of GPUs that stay out included."""
    used = gpus // size * size
    return int(comb(gpus, used) * factorial(used) // (factorial(size) ** (used // size) * factorial(used // size)))


def exact(problem: Problem, start: Groups | None = None) -> Found | None:
    """The best partition; None where no partition keeps every group connected.

    Args:
        problem: at most about 16 GPUs.
        start: a partition that is known already.
    """
    subsets, masks, partitions = partitions_of(len(problem.gpus), problem.size)
    exists = problem.routes.exists
    good = np.array([connected(exists, subset) for subset in subsets])
    bound = np.where(good[partitions].all(axis=1), 0.0, np.inf)
    best: tuple[float, int] = (float("inf"), -1)
    position = int(bound.argmin()) if start is None else _find(start, masks, partitions)
    priced = 0
    while priced < MOST_PRICED and bound[position] < best[0] * (1 - CLOSE):
        groups = _groups(subsets, partitions[position])
        cost = price(problem, groups)
        priced += 1
        if cost.seconds < best[0] * (1 - 1e-9):
            best = (cost.seconds, position)
        if cost.lengths is not None:
            weight = group_weights(problem, subsets, cost.lengths)
            fixed = float(cost.lengths @ problem.background_bytes)
            np.maximum(bound, fixed + weight[partitions].sum(axis=1), out=bound)
        bound[position] = max(bound[position], cost.seconds)
        position = int(bound.argmin())
    if best[1] < 0:
        return None
    return Found(_groups(subsets, partitions[best[1]]), best[0], min(best[0], float(bound.min())), priced)


def _find(groups: Groups, masks: np.ndarray, partitions: np.ndarray) -> int:
    ids = np.searchsorted(masks, sorted(sum(1 << member for member in group) for group in groups))
    rows = (np.sort(partitions, axis=1) == np.sort(ids)).all(axis=1)
    return int(rows.argmax())


def _groups(subsets: np.ndarray, row: np.ndarray) -> Groups:
    return tuple(sorted(tuple(int(member) for member in subsets[subset]) for subset in row))


def group_weights(problem: Problem, subsets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[subsets] block bytes x shortest distances between all ordered pairs of each subset, inside the subset."""
    weights = problem.routes.hop_weights(lengths)
    distance = weights[subsets[:, :, None], subsets[:, None, :]]
    for via in range(subsets.shape[1]):
        np.minimum(distance, distance[:, :, via, None] + distance[:, via, None, :], out=distance)
    total = distance.sum(axis=(1, 2)) * problem.block
    return np.where(np.isfinite(total), total, np.inf)


@lru_cache(maxsize=4)
def partitions_of(gpus: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every way to cut GPUs into groups.

    Returns:
        (subsets [subsets, size], their bit masks [subsets] ascending, partitions [partitions, groups] as positions
        in ``subsets``).
    """
    every = np.array(list(combinations(range(gpus), size)), dtype=np.int64)
    masks = (1 << every).sum(axis=1)
    order = np.argsort(masks)
    every, masks = every[order], masks[order]
    lowest = every[:, 0]
    left = gpus % size
    out = [sum(1 << gpu for gpu in gone) for gone in combinations(range(gpus), left)]
    used = np.array(out, dtype=np.int64)
    chosen = np.zeros((len(used), 0), dtype=np.int32)
    for _ in range(gpus // size):
        free = ~used & ((1 << gpus) - 1)
        first = np.log2((free & -free).astype(np.float64)).astype(np.int64)
        parts = []
        for gpu in np.unique(first):
            states = np.flatnonzero(first == gpu)
            candidates = np.flatnonzero(lowest == gpu)
            step = max(1, SLAB // len(candidates))
            for begin in range(0, len(states), step):
                slab = states[begin : begin + step]
                state, candidate = np.nonzero((used[slab][:, None] & masks[candidates]) == 0)
                parts.append((slab[state], candidates[candidate]))
        state, candidate = (np.concatenate(column) for column in zip(*parts, strict=True))
        used = used[state] | masks[candidate]
        chosen = np.concatenate([chosen[state], candidate[:, None].astype(np.int32)], axis=1)
    return every, masks, chosen
