"""Cheapest paths where every commodity sees prices of its own."""

from __future__ import annotations

import numpy as np

from solver.bound import Columns


def cheapest_each(prices: np.ndarray, root: np.ndarray, end: np.ndarray) -> tuple[Columns, np.ndarray]:
    """One cheapest path per commodity, by dynamic programming over hops (Bellman, 1958; Ford, 1956).

    Args:
        prices: [commodities, ranks, ranks] of each hop, not negative, infinite where there is none.
        root: [commodities] where each path starts.
        end: [commodities] where it ends.

    Returns:
        (columns, [commodities] prices); of equally cheap paths the one of fewest hops.
    """
    count, ranks = len(root), prices.shape[1]
    rows = np.arange(count)
    best = np.full((count, ranks), np.inf)
    best[rows, root] = 0.0
    via: list[np.ndarray] = []
    for _ in range(ranks - 1):
        through = best[:, :, None] + prices
        last = through.argmin(axis=1)
        following = np.take_along_axis(through, last[:, None, :], axis=1)[:, 0, :]
        stays = following >= best * (1 - 1e-12) - 1e-300
        if stays.all():
            break
        via.append(np.where(stays, np.arange(ranks), last))
        best = np.where(stays, best, following)
    here, which, hops = end.copy(), [], []
    for last in reversed(via):
        before = last[rows, here]
        moved = np.flatnonzero(before != here)
        which.append(moved)
        hops.append(before[moved] * ranks + here[moved])
        here = before
    return Columns.gather(rows, np.concatenate(which[::-1]), np.concatenate(hops[::-1])), best[rows, end]
