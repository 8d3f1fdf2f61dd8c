"""Cheap trees of limited depth.

The cheapest one is hard to find (the problem contains facility location), so it is searched for: every rank has a
level, hangs from its cheapest rank of a smaller level, and one after the other changes to the level at which the whole
tree is cheapest. All trees are searched side by side. What a hop costs may depend on the level it leads to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synth.collective.cheapest import min_arborescences

SEARCHED = 40_000_000
"""Beyond so many trees x ranks x ranks x ranks, trees are grown and cut but not searched."""
LARGE = 200
"""Beyond so many ranks only grown trees are tried."""
PASSES = 3
"""The search looks at each rank of a tree so often."""


def shallow_trees(
    weights: np.ndarray, roots: np.ndarray, depth: int, hops: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A cheap out-tree of limited depth from each root.

    Args:
        weights: [1 or roots, 1 or depth, ranks, ranks] price of each hop, by the level it leads to less one, infinite
            where there is none.
        roots: [roots] where the trees start.
        depth: most hops from the root; raised where a rank is farther away than that.
        hops: [ranks, ranks] fewest hops from row to column.

    Returns:
        As :func:`improved`.
    """
    depth = max(depth, int(hops[roots].max()))
    return improved(weights, roots, guessed(weights, roots, depth, hops), depth)


def improved(
    weights: np.ndarray, roots: np.ndarray, level: np.ndarray, depth: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Trees found from given levels.

    Args:
        weights: as for :func:`shallow_trees`.
        roots: [roots] where the trees start.
        level: [roots, ranks] 0 for the root, 1 to ``depth`` elsewhere.
        depth: the largest level.

    Returns:
        ([roots, ranks] parents, -1 for the root; [roots, ranks] levels: larger than that of the parent;
        [roots] prices).
    """
    level, count = level.copy(), len(roots)
    forest = _Forest(_finite(weights), roots, depth)
    if count * weights.shape[-1] ** 3 <= SEARCHED:
        forest.search(level, tolerance=1e-9 * _largest(weights))
    parents, cost, _ = forest.hang(level)
    parents[np.arange(count), roots] = -1
    return parents, level, np.asarray(cost.sum(axis=1))


def guessed(weights: np.ndarray, roots: np.ndarray, depth: int, hops: np.ndarray) -> np.ndarray:
    """[roots, ranks] levels of the cheapest of some trees.

    They are: grown from the root, each rank as near to it as can be, and, where prices do not depend on the level, the
    cheapest tree of any depth cut at the limit. Arguments as for :func:`shallow_trees`.
    """
    count = len(roots)
    near = hops[roots].copy()
    if near.max() == 1:
        near[:] = depth  # leaves at first; promoting some is what the search is about
    price = _finite(weights)
    starts = [depths(_grow(price.mean(axis=1).swapaxes(1, 2), roots, depth)), near]
    if weights.shape[-1] <= LARGE and weights.shape[1] == 1:
        cheapest = min_arborescences(weights[0, 0], roots)[1]
        starts.append(np.minimum(depths(cheapest), depth))
    for level in starts:
        level[np.arange(count), roots] = 0
    forest = _Forest(price, roots, depth)
    prices = [forest.hang(level)[1].sum(axis=1) for level in starts]
    return np.asarray(np.stack(starts)[np.argmin(prices, axis=0), np.arange(count)])


def _largest(weights: np.ndarray) -> float:
    """The dearest hop there is."""
    return max(float(weights[np.isfinite(weights)].max(initial=0.0)), 1e-300)


def _finite(weights: np.ndarray) -> np.ndarray:
    """The weights by child and parent, with a price beyond all others where there is no hop."""
    ranks = weights.shape[-1]
    dear = 1e3 * ranks * _largest(weights)
    price = np.where(np.isfinite(weights) & ~np.eye(ranks, dtype=bool), weights, dear)
    return np.ascontiguousarray(price.swapaxes(2, 3))


def _grow(price: np.ndarray, roots: np.ndarray, depth: int) -> np.ndarray:
    """[roots, ranks] parents of trees grown hop by hop from the root, the cheapest first, shallow ones among equals."""
    count, ranks = len(roots), price.shape[1]
    rows = np.arange(count)
    which = rows if len(price) > 1 else np.zeros(count, dtype=np.int64)
    nudge = 1e-7 * float(np.median(price))
    parents = np.full((count, ranks), -1)
    level = np.zeros((count, ranks), dtype=np.int64)
    cost = price[which, roots].copy()
    parents[:] = roots[:, None]
    parents[rows, roots] = -1
    cost[rows, roots] = np.inf
    done = np.zeros((count, ranks), dtype=bool)
    done[rows, roots] = True
    for _ in range(ranks - 1):
        new = cost.argmin(axis=1)
        level[rows, new] = level[rows, parents[rows, new]] + 1
        done[rows, new] = True
        cost[rows, new] = np.inf
        offer = price[which, new] + nudge * level[rows, new][:, None]
        offer[level[rows, new] >= depth] = np.inf
        better = (offer < cost) & ~done
        cost = np.where(better, offer, cost)
        parents = np.where(better, new[:, None], parents)
    return parents


def depths(parents: np.ndarray) -> np.ndarray:
    """[roots, ranks] hops from the root."""
    ranks = parents.shape[1]
    depth = np.zeros_like(parents)
    here = parents.copy()
    for _ in range(ranks):
        inside = here >= 0
        if not inside.any():
            break
        depth += inside
        here = np.where(inside, np.take_along_axis(parents, np.maximum(here, 0), axis=1), -1)
    return depth


class _Hung(NamedTuple):
    """Of each rank of each tree: the cheapest parent of a smaller level, its price, the price of the next best parent.

    The root costs nothing; where there is no next best parent its price is infinite.
    """

    parent: np.ndarray
    first: np.ndarray
    second: np.ndarray


def _cheapest_two(price: np.ndarray, root: np.ndarray) -> _Hung:
    """From [.., ranks] the price of each parent, infinite where it cannot be one; changes it."""
    parent = price.argmin(axis=-1)
    chosen = np.expand_dims(parent, -1)
    first = np.take_along_axis(price, chosen, axis=-1)[..., 0]
    np.put_along_axis(price, chosen, np.inf, axis=-1)
    return _Hung(parent, np.where(root, 0.0, first), price.min(axis=-1))


class _Forest:
    """Trees given by levels.

    Args:
        price: [1 or trees, 1 or depth, child, parent] of each hop, by the child's level less one; never infinite.
        roots: [trees] where they start.
        depth: the largest level.
    """

    def __init__(self, price: np.ndarray, roots: np.ndarray, depth: int) -> None:
        self._price, self._roots = price, roots
        self._which = np.arange(len(roots)) if len(price) > 1 else np.zeros(len(roots), dtype=np.int64)
        self._everyone = np.arange(price.shape[-1])
        self._ladder = np.arange(1, depth + 1)
        self._stage_of = np.minimum(np.maximum(np.arange(depth + 1) - 1, 0), price.shape[1] - 1)  # by level

    def hang(self, level: np.ndarray) -> _Hung:
        """The cheapest parents of a smaller level."""
        price = self._price[self._which[:, None], self._stage_of[level], self._everyone]
        return _cheapest_two(np.where(level[:, None, :] < level[:, :, None], price, np.inf), level == 0)

    def _parents(self, level: np.ndarray, tree: np.ndarray, rank: np.ndarray) -> _Hung:
        """As :meth:`hang`, of one rank of one tree each."""
        own = level[tree, rank]
        price = self._price[self._which[tree], self._stage_of[own], rank]
        return _cheapest_two(np.where(level[tree] < own[:, None], price, np.inf), own == 0)

    def search(self, level: np.ndarray, *, tolerance: float) -> None:
        """Give one rank after the other its best level, in all trees side by side; changes ``level``."""
        hung = self.hang(level)
        above = (level[:, :, None] > self._ladder).astype(np.float64)  # [trees, rank, rung]: could hang from that rung
        barrier = np.where(level[:, None, :] < self._ladder[:, None], 0.0, np.inf)  # [trees, rung, rank]
        for _ in range(PASSES):
            moves = [self._lift(rank, level, hung, above, barrier, tolerance) for rank in self._everyone.tolist()]
            if not any(moves):
                break

    def _lift(
        self, rank: int, level: np.ndarray, hung: _Hung, above: np.ndarray, barrier: np.ndarray, tolerance: float
    ) -> bool:
        """Give one rank its best level in every tree; returns whether it moved in any."""
        price, ladder = self._price, self._ladder
        if price.shape[1] == 1:
            offers = price[self._which, 0, :, rank]
        else:
            offers = price[self._which[:, None], self._stage_of[level], self._everyone, rank]
        own = (price[:, :, rank] + barrier).min(axis=2)
        without = np.where((hung.parent == rank) & np.isfinite(hung.second), hung.second, hung.first)
        saved = np.maximum(without - offers, 0.0)
        saved[:, rank] = 0.0
        prices = own - np.matmul(saved[:, None, :], above)[:, 0, :]  # of each tree, up to a constant, by rung
        prices[self._roots == rank] = 0.0
        best = prices.argmin(axis=1)
        every = np.arange(len(level))
        moved = np.flatnonzero(prices[every, level[:, rank] - 1] - prices[every, best] > tolerance)
        if not len(moved):
            return False
        before, after = level[moved, rank, None], best[moved, None] + 1
        level[moved, rank] = after[:, 0]
        above[moved, rank] = after > ladder
        barrier[moved, :, rank] = np.where(after < ladder, 0.0, np.inf)
        self._rehang(rank, level, hung, moved, before < level[moved], after < level[moved], offers[moved])
        return True

    def _rehang(
        self,
        rank: int,
        level: np.ndarray,
        hung: _Hung,
        moved: np.ndarray,
        could: np.ndarray,
        can: np.ndarray,
        offers: np.ndarray,
    ) -> None:
        """Correct ``hung`` where a rank moved: [moved, ranks] who could hang from it, who can now, at what price."""
        lost = could & ~can & (offers <= hung.second[moved])
        lost[:, rank] = True
        row, child = np.nonzero(lost)
        tree = moved[row]
        for part, corrected in zip(hung, self._parents(level, tree, child), strict=True):
            part[tree, child] = corrected
        gained = can & ~could & (offers < hung.second[moved])
        gained[:, rank] = False
        row, child = np.nonzero(gained)
        tree, offer = moved[row], offers[row, child]
        better = offer < hung.first[tree, child]
        hung.second[tree, child] = np.where(better, hung.first[tree, child], offer)
        tree, child = tree[better], child[better]
        hung.parent[tree, child] = rank
        hung.first[tree, child] = offer[better]
