"""Pricing under a limit on depth: trees and paths of at most so many hops from end to end.

A shallow tree costs a pipeline less to fill and drain than the cheapest tree, which is often a chain. The cheapest
tree of limited depth is hard to find (it contains facility location), so it is searched for: every rank has a level,
hangs from its cheapest rank of a smaller level, and changes level while that lowers the price of the whole tree. All
roots are searched side by side.
"""

from __future__ import annotations

import numpy as np

from solver.bound.columns import Columns
from solver.bound.pricing import Pricer, hop_limited_paths, pruned
from solver.bound.problem import Problem, Shape
from synth.collective.cheapest import min_arborescences

MOVES = 4
"""A search makes at most so many moves per rank."""
SEARCHED = 2_000_000
"""Beyond so many trees x ranks x ranks x depth, trees are grown and cut but not searched."""
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
        commodities, moving = problem.commodities, problem.moving
        weights = problem.weights(prices)
        shapes = commodities.shape[moving]
        parts, costs = [], []
        for shape in Shape:
            mine = moving[shapes == shape]
            if not len(mine):
                continue
            root = commodities.root[mine]
            if shape is Shape.PATH:
                sources, row = np.unique(root, return_inverse=True)
                end = commodities.end[mine]
                most = max(depth, int(problem.hops[root, end].max()))
                found, cost = hop_limited_paths(weights, mine, sources, row, end, most)
            else:
                inward = shape is Shape.IN_TREE
                copies = _copies(problem.routes.ranks, len(mine))
                tried = _jittered(weights.T if inward else weights, copies * len(mine), len(mine), random)
                parents, cost = shallow_trees(
                    tried, np.tile(root, copies), depth, problem.hops.T if inward else problem.hops
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
    """Most hops between two ranks that must exchange, by the fewest hops there are."""
    return int(problem.hops.max())


def shallow_trees(
    weights: np.ndarray, roots: np.ndarray, depth: int, hops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A cheap out-tree of limited depth from each root.

    Args:
        weights: [1 or roots, ranks, ranks] price of each hop, infinite where there is none.
        roots: [roots] where the trees start.
        depth: most hops from the root; raised where a rank is farther away than that.
        hops: [ranks, ranks] fewest hops from row to column.

    Returns:
        ([roots, ranks] parents, -1 for the root; [roots] prices).
    """
    ranks, count = weights.shape[1], len(roots)
    distance = hops[roots]
    depth = max(depth, int(distance.max()))
    finite = weights[np.isfinite(weights)]
    dear = 1e3 * ranks * max(float(finite.max(initial=0.0)), 1e-300)
    price = np.where(np.isfinite(weights) & ~np.eye(ranks, dtype=bool), weights, dear)
    # three starts: grown from the root, everyone as near to it as can be, and the cheapest tree cut at the limit
    grown = _depths(_grow(price, roots, depth))
    near = distance.copy()
    if distance.max() == 1:
        near[:] = depth  # leaves at first; promoting some is what the search is about
    cheap = np.minimum(_depths(min_arborescences(weights[0], roots)[1]), depth) if ranks <= LARGE else near
    starts = [grown, near] if ranks > LARGE else [grown, near, cheap]
    prices = []
    for level in starts:
        level[np.arange(count), roots] = 0
        prices.append(_hang(price, level)[1].sum(axis=1))
    best = np.argmin(prices, axis=0)
    level = np.stack(starts)[best, np.arange(count)]
    return _search(price, level, roots, depth, tolerance=1e-9 * dear / (1e3 * ranks))


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


def _search(
    price: np.ndarray, level: np.ndarray, roots: np.ndarray, depth: int, *, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Move one rank per tree to its best other level until nothing gets cheaper: (parents, prices of the trees)."""
    rows = active = np.arange(len(roots))
    ladder = np.arange(1, depth + 1)
    ranks = level.shape[1]
    for _ in range(MOVES * ranks if level.size * ranks * depth <= SEARCHED else 0):
        if not len(active):
            break
        gain = _gains(price if len(price) == 1 else price[active], level[active], ladder)
        gain[np.arange(len(active)), roots[active]] = -np.inf
        flat = gain.reshape(len(active), -1)
        best = flat.argmax(axis=1)
        better = flat[np.arange(len(active)), best] > tolerance
        active, best = active[better], best[better]
        level[active, best // depth] = best % depth + 1
    parents, cost = _hang(price, level)
    parents[rows, roots] = -1
    return parents, np.asarray(cost.sum(axis=1))


def _allowed(price: np.ndarray, level: np.ndarray) -> np.ndarray:
    """[roots, parent, child] price where the parent's level is smaller, else infinite."""
    return np.where(level[:, :, None] < level[:, None, :], price, np.inf)


def _hang(price: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([roots, ranks] cheapest parent, [roots, ranks] its price)."""
    allowed = _allowed(price, level)
    parents = allowed.argmin(axis=1)
    cost = np.take_along_axis(allowed, parents[:, None, :], axis=1)[:, 0, :]
    return parents, np.where(level == 0, 0.0, cost)


def _gains(price: np.ndarray, level: np.ndarray, ladder: np.ndarray) -> np.ndarray:
    """[roots, ranks, depth] how much cheaper a tree gets when one rank moves to another level."""
    allowed = _allowed(price, level)
    parents = allowed.argmin(axis=1)
    cost = np.take_along_axis(allowed, parents[:, None, :], axis=1)
    np.put_along_axis(allowed, parents[:, None, :], np.inf, axis=1)
    second = allowed.min(axis=1)
    cost = cost[:, 0, :]
    cost[level == 0] = 0.0
    second = np.where(level == 0, 0.0, second)
    # own price at each level: the cheapest rank below it
    below = level[:, :, None] < ladder  # [roots, parent, depth]
    own = np.stack([np.where(below[:, :, d, None], price, np.inf).min(axis=1) for d in range(len(ladder))], axis=2)
    gain = cost[:, :, None] - own
    # others: who could hang from it when it moves up, who loses it when it moves down
    saved = np.maximum(cost[:, None, :] - price, 0.0)  # [roots, mover, other]
    above = (level[:, :, None] > ladder).astype(np.float64)  # [roots, other, depth]
    gain += np.matmul(saved, above)
    lost = np.where(parents[:, None, :] == np.arange(price.shape[1])[None, :, None], (second - cost)[:, None, :], 0.0)
    lost = np.where((level == 0)[:, None, :], 0.0, lost)
    reachable = np.isfinite(lost)
    gain -= np.matmul(np.where(reachable, lost, 0.0), 1.0 - above)
    gain[np.matmul((~reachable).astype(np.float64), 1.0 - above) > 0] = -np.inf
    gain[~np.isfinite(own)] = -np.inf
    np.put_along_axis(gain, np.maximum(level - 1, 0)[:, :, None], -np.inf, axis=2)
    return np.asarray(gain)
