"""Pricing under a limit on depth: trees and paths of at most so many hops from end to end.

A shallow tree costs a pipeline less to fill and drain than the cheapest tree, which is often a chain.
"""

from __future__ import annotations

import numpy as np

from solver.bound.columns import Columns
from solver.bound.forest import depths, improved, shallow_trees
from solver.bound.pricing import Improver, Pricer, hop_limited_paths, of_each_shape, pruned
from solver.bound.problem import Problem, Shape

STARTS = 12
"""About so many of the trees in use are searched on from."""
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


def onward(depth: int) -> Improver:
    """Searches on from the levels of the trees in use; those found are at most ``depth`` hops deep, or as deep."""

    def improve(problem: Problem, prices: np.ndarray, used: Columns) -> Columns:
        weights = problem.weights(prices)
        parts = []
        for shape, mine in of_each_shape(problem):
            if shape is Shape.PATH:
                continue
            inward = shape is Shape.IN_TREE
            trees = used.take(first_of_each(used.commodity, mine, max(STARTS // len(mine), 1)))
            roots = problem.commodities.root[trees.commodity]
            level = levels_of(trees, roots, problem, depth, inward=inward)
            toward = weights.T if inward else weights
            parents, _, _ = improved(toward[None, None], roots, level, max(depth, int(level.max(initial=1))))
            if problem.demand.ranks < problem.routes.ranks:
                parents = pruned(parents, problem.demand.ranks)
            parts.append(Columns.of_trees(trees.commodity, parents, inward=inward))
        return Columns.join(parts)

    return improve


def first_of_each(commodity: np.ndarray, wanted: np.ndarray, most: int) -> np.ndarray:
    """Positions, in order, of at most so many of each wanted commodity: the first."""
    rows = np.flatnonzero(np.isin(commodity, wanted))
    rows = rows[np.argsort(commodity[rows], kind="stable")]
    label = commodity[rows]
    return np.sort(rows[np.arange(len(rows)) - np.searchsorted(label, label) < most])


def levels_of(trees: Columns, roots: np.ndarray, problem: Problem, depth: int, *, inward: bool) -> np.ndarray:
    """[trees, ranks] hops between each rank and the root; helpers outside a tree wait ``depth`` hops away."""
    ranks = problem.routes.ranks
    row, src, dst = np.repeat(np.arange(len(trees)), np.diff(trees.starts)), trees.hops // ranks, trees.hops % ranks
    parents = np.full((len(trees), ranks), -1)
    parents[row, src if inward else dst] = dst if inward else src
    level = depths(parents)
    level[(parents < 0) & (np.arange(ranks) != roots[:, None])] = depth
    return level


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
