"""Pricing under a limit on depth: trees and paths of at most so many hops from end to end.

A shallow tree costs a pipeline less to fill and drain than the cheapest tree, which is often a chain. The cheapest
tree of limited depth is hard to find (it contains facility location), so it is searched for: every rank has a level,
hangs from its cheapest rank of a smaller level, and one after the other changes to the level at which the whole tree
is cheapest. All roots are searched side by side. What a hop costs may depend on the level it leads to.
"""

from __future__ import annotations

import numpy as np

from solver.bound.columns import Columns
from solver.bound.pricing import Pricer, hop_limited_paths, of_each_shape, pruned
from solver.bound.problem import Problem, Shape
from synth.collective.cheapest import min_arborescences

SEARCHED = 40_000_000
"""Beyond so many trees x ranks x ranks x ranks, trees are grown and cut but not searched."""
LARGE = 200
"""Beyond so many ranks only grown trees are tried."""
COPIES = 16
"""Where there are fewer commodities than this, each is searched for several times under slightly different prices."""
JITTER = 0.5
"""How much prices differ between the copies, at most."""


def limited(depth: int, *, seed: int = 0) -> Pricer:
    """A pricer of routes at most ``depth`` hops deep; where none exists, of the shallowest there are."""
    random = np.random.default_rng(seed)

    def price(problem: Problem, prices: np.ndarray) -> tuple[Columns, np.ndarray]:
        weights = problem.weights(prices)
        parts, costs = [], []
        for shape, mine in of_each_shape(problem):
            root = problem.commodities.root[mine]
            if shape is Shape.PATH:
                end = problem.commodities.end[mine]
                most = max(depth, int(problem.hops[root, end].max()))
                found, _, cost = hop_limited_paths(np.broadcast_to(weights, (most, *weights.shape)), mine, root, end)
            else:
                inward = shape is Shape.IN_TREE
                copies = _copies(problem.routes.ranks, len(mine))
                tried = _jittered(weights.T if inward else weights, copies * len(mine), len(mine), random)
                parents, _, cost = shallow_trees(
                    tried[:, None], np.tile(root, copies), depth, problem.hops.T if inward else problem.hops
                )
                if problem.demand.ranks < problem.routes.ranks:
                    parents = pruned(parents, problem.demand.ranks)
                found = Columns.of_trees(np.tile(mine, copies), parents, inward=inward)
            parts.append(found)
            costs.append(cost)
        return Columns.join(parts), np.concatenate(costs)

    return price


def _copies(ranks: int, trees: int) -> int:
    """How often to search for each tree: fewer where there are many, or where each is large."""
    most = max(1, COPIES * 32**2 // (ranks**2 * trees))
    return min(-(-COPIES // trees), most) if ranks > 32 else -(-COPIES // trees)


def _jittered(weights: np.ndarray, count: int, exact: int, random: np.random.Generator) -> np.ndarray:
    """[1 or count, ranks, ranks] the weights, disturbed in all but the first few of several copies."""
    if count == exact:
        return weights[None]
    scale = np.linspace(0.0, JITTER, count // exact).repeat(exact)
    return weights * (1.0 + scale[:, None, None] * random.random((count, *weights.shape)))


def farthest(problem: Problem) -> int:
    """Most hops that some route must have, by the fewest hops there are between its ends."""
    hops, commodities = problem.hops, problem.commodities
    most = 0
    for shape, mine in of_each_shape(problem):
        root = commodities.root[mine]
        match shape:
            case Shape.PATH:
                least = hops[root, commodities.end[mine]]
            case Shape.OUT_TREE:
                least = hops[root]
            case Shape.IN_TREE:
                least = hops.T[root]
        most = max(most, int(least.max()))
    return most


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
    parents, cost, _ = forest.hang(level, np.arange(count))
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
    starts = [_depths(_grow(price.mean(axis=1).swapaxes(1, 2), roots, depth)), near]
    if weights.shape[-1] <= LARGE and weights.shape[1] == 1:
        cheapest = min_arborescences(weights[0, 0], roots)[1]
        starts.append(np.minimum(_depths(cheapest), depth))
    for level in starts:
        level[np.arange(count), roots] = 0
    forest = _Forest(price, roots, depth)
    prices = [forest.hang(level, np.arange(count))[1].sum(axis=1) for level in starts]
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


def _depths(parents: np.ndarray) -> np.ndarray:
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

    def hang(self, level: np.ndarray, trees: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[trees, ranks] each: the cheapest parent of a smaller level, its price, the price without that parent."""
        price = self._price[self._which[trees][:, None], self._stage_of[level], self._everyone]
        price = np.where(level[:, None, :] < level[:, :, None], price, np.inf)
        parents = price.argmin(axis=2)
        index = (np.arange(len(level))[:, None], self._everyone, parents)
        first = price[index]
        price[index] = np.inf
        second = price.min(axis=2)
        first[level == 0] = 0.0
        return parents, first, np.where(np.isinf(second), first, second)  # the root's children have no other choice

    def search(self, level: np.ndarray, *, tolerance: float) -> None:
        """Give one rank after the other its best level, in all trees side by side; changes ``level``."""
        roots, ladder, everyone, price = self._roots, self._ladder, self._everyone, self._price
        trees, rungs = np.arange(len(roots)), self._stage_of[1:]
        parents, first, second = self.hang(level, trees)
        stage = self._stage_of[level]
        above = (level[:, :, None] > ladder).astype(np.float64)  # [trees, rank, rung]: could hang from that rung
        barrier = np.where(level[:, None, :] < ladder[:, None], 0.0, np.inf)  # [trees, rung, rank]
        for rank in everyone.tolist():
            own = (price[:, rungs, rank] + barrier).min(axis=2)
            without = np.where(parents == rank, second, first)
            saved = np.maximum(without - price[self._which[:, None], stage, everyone, rank], 0.0)
            saved[:, rank] = 0.0
            prices = own - np.matmul(saved[:, None, :], above)[:, 0, :]  # of each tree, up to a constant, by rung
            prices[roots == rank] = 0.0
            best = prices.argmin(axis=1)
            moved = np.flatnonzero(prices[trees, level[:, rank] - 1] - prices[trees, best] > tolerance)
            if len(moved):
                level[moved, rank] = best[moved] + 1
                stage[moved, rank] = self._stage_of[level[moved, rank]]
                above[moved, rank] = level[moved, rank, None] > ladder
                barrier[moved, :, rank] = np.where(level[moved, rank, None] < ladder, 0.0, np.inf)
                parents[moved], first[moved], second[moved] = self.hang(level[moved], moved)
