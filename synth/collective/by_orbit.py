"""The cheapest way to deliver blocks where symmetries leave few kinds of hops, for one rank of each orbit.

The same prices as :mod:`synth.collective.cheapest`, without ever looking at all pairs of ranks one by one: shortest
paths from one rank look at hops from those only that can still shorten something; a tree is contracted for whole
orbits of cycles at once. Prices come by kind of hop, infinite for kind 0.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra

from synth.collective.demand import Collective, Demand
from synth.topology.kinds import Kinds

SAME = 1e-12
"""Prices that differ by less than this part of one are the same: detours at the same price lose."""
NUDGE = 1e-9
"""Part of the dearest hop that every hop costs more where paths of equal price are told apart by their hops."""


def shortest_from(kinds: Kinds, price: np.ndarray, root: int) -> tuple[np.ndarray, np.ndarray]:
    """Shortest paths from one rank to all (Dijkstra, 1959).

    Returns:
        ([ranks] their prices; [ranks] the rank before each on the way, itself for the root).
    """
    if kinds.few is not None:
        return _shortest_among_few(kinds.few, price, root)
    distance = price[kinds.of[root]]
    distance[root] = 0.0
    before = np.full(kinds.ranks, root)
    waiting = distance.copy()
    waiting[root] = np.inf
    least = price.min()
    for _ in range(kinds.ranks - 1):
        nearest = int(waiting.argmin())
        if distance[nearest] + least >= distance.max():
            break
        waiting[nearest] = np.inf
        through = distance[nearest] + price[kinds.of[nearest]]
        better = np.flatnonzero(through < distance * (1 - SAME))
        distance[better] = waiting[better] = through[better]
        before[better] = nearest
    return distance, before


def _shortest_among_few(hops: sparse.csr_matrix, price: np.ndarray, root: int) -> tuple[np.ndarray, np.ndarray]:
    weights = price[hops.data]
    dearest = weights.max(initial=0.0)

    def graph(data: np.ndarray) -> sparse.csr_matrix:
        return sparse.csr_matrix((data, hops.indices, hops.indptr), shape=hops.shape)

    start = np.array([root])
    distance = dijkstra(graph(weights), indices=start)[0]
    before = dijkstra(graph(weights + NUDGE * dearest), indices=start, return_predecessors=True)[1][0].astype(np.int64)
    before[root] = root
    return np.asarray(distance), np.asarray(before)


class _Level:
    """One step of the contraction.

    Args:
        part: [ranks] what each rank was contracted to before.
        whole: [parts] what the parts are contracted to now.
        src: [hops] where the cheapest hops into parts begin.
        dst: [hops] where they end.
    """

    def __init__(self, part: np.ndarray, whole: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
        self._part, self._parts = part, len(whole)
        tail, head = part[src], part[dst]
        inside = np.flatnonzero((whole[tail] == whole[head]) & (tail != head))
        self._code, first = np.unique(tail[inside] * self._parts + head[inside], return_index=True)
        self._src, self._dst = src[inside[first]], dst[inside[first]]

    def entered(self, entry: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """[parts] the rank a tree enters each part by, from that of each part of the level above.

        Hops are followed breadth-first from the part that is entered; ``parents`` gets those that are taken.
        """
        parts, begins = self._parts, self._part[entry]
        rows = np.concatenate([self._code // parts, np.full(len(begins), parts)])
        columns = np.concatenate([self._code % parts, begins])
        graph = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(parts + 1, parts + 1))
        _, before = breadth_first_order(graph, parts)
        entered = np.empty(parts, dtype=np.int64)
        others = np.ones(parts, dtype=bool)
        others[begins] = False
        reached = np.flatnonzero(others)
        hop = np.searchsorted(self._code, before[reached].astype(np.int64) * parts + reached)
        parents[self._dst[hop]] = self._src[hop]
        entered[begins] = entry
        entered[reached] = self._dst[hop]
        return entered


class Trees:
    """The cheapest out-trees from one rank of each orbit to all ranks, or the cheapest in-trees.

    Every part, at first a rank, takes its cheapest hop from outside and lowers all hops into it by that price; parts
    that reach each other over such hops become one. Images of a part do the same, so one part of each orbit is looked
    at; all images of its hop are taken, so that what comes out is symmetric again. What a part lowered its hops by is
    paid once by every tree that starts outside of it, and all that together is the price of the cheapest tree.

    Source: Edmonds, "Optimum branchings", 1967, for the contraction and its dual; Gabow, Galil, Spencer and Tarjan,
    1986, for doing it for all roots at once.

    Args:
        kinds: the hops among ranks that reach each other.
        price: [kinds] of each hop.
        inward: hops lead to the root.

    Attributes:
        prices: [representatives] of the cheapest tree from each.
    """

    def __init__(self, kinds: Kinds, price: np.ndarray, *, inward: bool = False) -> None:
        group = kinds.group
        ends = group.representatives
        entering = price[kinds.of[ends] if inward else kinds.of[:, ends].T]  # [representatives, ranks] from each rank
        spread = group.orbit_sizes[group.orbit]
        same = SAME * float(price[np.isfinite(price)].max(initial=0.0))
        lowered = np.zeros(len(ends))
        part: np.ndarray = np.arange(kinds.ranks)
        self.prices = np.zeros(len(ends))
        self._ranks = kinds.ranks
        self._levels: list[_Level] = []
        while (part != part[0]).any():
            outside = np.where(part == part[ends][:, None], np.inf, entering) - lowered[:, None]
            least = outside.min(axis=1)
            # of equally cheap hops, those from the largest orbit load each link least
            source = np.where(outside <= least[:, None] + same, spread, 0).argmax(axis=1)
            together = _orbits_that_share_parts(group.orbit, part)  # [representatives] label of the parts' orbit
            count = np.bincount(together[group.orbit[np.unique(part, return_index=True)[1]]])
            hops = []
            paid = np.zeros(len(count))
            for label in range(len(count)):
                mine = np.flatnonzero(together == label)
                best = int(mine[least[mine].argmin()])
                paid[label] = max(least[best], 0.0)
                hops.append(np.stack([group.images(int(source[best])), group.images(int(ends[best]))]))
            self.prices += paid @ count - paid[together]
            lowered += paid[together]
            src, dst = np.concatenate(hops, axis=1)
            number = int(part.max()) + 1
            graph = sparse.csr_matrix((np.ones(len(src)), (part[src], part[dst])), shape=(number, number))
            whole = connected_components(graph, connection="strong")[1]
            self._levels.append(_Level(part, whole, src, dst))
            part = whole[part]

    def parents(self, root: int) -> np.ndarray:
        """[ranks] parent of each rank in the cheapest tree from one rank, -1 for the root."""
        entry = np.array([root])  # of each part of the level above, the rank the tree enters it by
        parents = np.full(self._ranks, -1)
        for level in reversed(self._levels):
            entry = level.entered(entry, parents)
        return parents


def _orbits_that_share_parts(orbit: np.ndarray, part: np.ndarray) -> np.ndarray:
    """[orbits] label of the orbit of the parts that each orbit of ranks is in."""
    orbits = int(orbit.max()) + 1
    number = orbits + int(part.max()) + 1
    graph = sparse.coo_matrix((np.ones(len(part)), (orbit, orbits + part)), shape=(number, number))
    return np.unique(connected_components(graph, directed=False)[1][:orbits], return_inverse=True)[1]


def least_total(kinds: Kinds, price: np.ndarray, demand: Demand) -> float:
    """Sum over all blocks of their bytes times the least price at which each can be delivered.

    Args:
        kinds: of the hops among the ranks of the demand.
        price: [kinds] of each hop.
        demand: as symmetric as the hops.
    """
    group = kinds.group
    match demand.collective:
        case Collective.ALLTOALL:
            total = 0.0
            for root, images in zip(group.representatives.tolist(), group.orbit_sizes.tolist(), strict=True):
                distance, _ = shortest_from(kinds, price, root)
                total += images * float(demand.row(root) @ distance)
            return total
        case Collective.ALLGATHER | Collective.REDUCE_SCATTER:
            trees = Trees(kinds, price, inward=demand.collective is Collective.REDUCE_SCATTER)
            return float(trees.prices @ group.orbit_sizes) * demand.bytes / demand.ranks
        case Collective.ALLREDUCE:
            both = Trees(kinds, price).prices + Trees(kinds, price, inward=True).prices
            return float(both.min()) * demand.bytes
        case Collective.BROADCAST | Collective.REDUCE:
            trees = Trees(kinds, price, inward=demand.collective is Collective.REDUCE)
            return float(trees.prices[group.orbit[demand.root]]) * demand.bytes
        case Collective.SENDRECV:
            raise AssertionError("symmetries are not looked for among pairs")


def farthest(kinds: Kinds, price: np.ndarray, demand: Demand) -> float:
    """The largest, over blocks that move anything, of the least price of a path from its start to its end."""
    if demand.matrix is None and not demand.bytes:
        return 0.0
    worst = 0.0
    for rank in kinds.group.representatives.tolist():
        distance, _ = shortest_from(kinds, price, rank)
        if demand.collective is Collective.ALLTOALL:
            distance = distance[demand.row(rank) > 0]
        elif demand.collective is Collective.REDUCE:
            distance = distance[demand.root]
        elif demand.collective is Collective.BROADCAST and rank != demand.root:
            continue
        worst = max(worst, float(distance.max(initial=0.0)))
    return worst
