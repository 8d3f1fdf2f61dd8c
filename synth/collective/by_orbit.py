"""The cheapest way to deliver blocks where symmetries leave few kinds of hops, for one rank of each orbit.

The same prices as :mod:`synth.collective.cheapest`, without ever looking at all pairs of ranks one by one: shortest
paths from one rank look at hops from those only that can still shorten something; a tree is contracted for whole
orbits of cycles at once. Prices come by kind of hop, infinite for kind 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.collective.demand import Collective, Demand
from synth.topology.group import joined
from synth.topology.kinds import Hops, Kinds

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
        return _shortest_among_few(kinds.few, kinds.ranks, price, root)
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


def _shortest_among_few(hops: Hops, ranks: int, price: np.ndarray, root: int) -> tuple[np.ndarray, np.ndarray]:
    weights = price[hops.kind]
    distance, _ = _relaxed(hops, ranks, weights, root)
    _, before = _relaxed(hops, ranks, weights + NUDGE * weights.max(initial=0.0), root)
    return distance, before


def _relaxed(hops: Hops, ranks: int, weights: np.ndarray, root: int) -> tuple[np.ndarray, np.ndarray]:
    """Shortest paths over hops in the order of their ends (Bellman, 1958; Ford, 1956)."""
    distance = np.full(ranks, np.inf)
    distance[root] = 0.0
    first = np.flatnonzero(np.diff(hops.dst, prepend=-1))
    ends = hops.dst[first]
    while True:
        through = distance[hops.src] + weights
        nearer = np.minimum(distance[ends], np.minimum.reduceat(through, first))
        if (nearer == distance[ends]).all():
            break
        distance[ends] = nearer
    shortest = np.flatnonzero((through == distance[hops.dst]) & (hops.dst != root))[::-1]
    before = np.full(ranks, root)
    before[hops.dst[shortest]] = hops.src[shortest]  # the first of several
    return distance, before


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One step of a contraction.

    Attributes:
        part: [ranks] what each rank was contracted to before.
        whole: [parts] what the parts are contracted to now.
        src: [hops] where the cheapest hops into parts begin.
        dst: [hops] where they end.
    """

    part: np.ndarray
    whole: np.ndarray
    src: np.ndarray
    dst: np.ndarray


class Contraction:
    """The ranks contracted to one, over the cheapest hops of trees from each to all, or from all to each.

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
        prices: [representatives] of the cheapest tree from each, or to each.
        levels: the steps.
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
        self.levels: list[Level] = []
        while (part != part[0]).any():
            outside = np.where(part == part[ends][:, None], np.inf, entering) - lowered[:, None]
            least = outside.min(axis=1)
            # of equally cheap hops, those from the largest orbit load each link least
            source = np.where(outside <= least[:, None] + same, spread, 0).argmax(axis=1)
            parts = int(part.max()) + 1
            # [representatives] label of the orbit of parts that each orbit of ranks is in
            together = joined(len(ends) + parts, group.orbit, len(ends) + part)[: len(ends)]
            count = np.bincount(together[group.orbit[np.unique(part, return_index=True)[1]]])
            best = np.array([min(np.flatnonzero(together == label), key=least.item) for label in range(len(count))])
            paid = np.maximum(least[best], 0.0)
            self.prices += paid @ count - paid[together]
            lowered += paid[together]
            hops = [np.stack([group.images(int(source[end])), group.images(int(ends[end]))]) for end in best.tolist()]
            # in a cycle of orbits, as much goes into every part as goes out: parts that are joined reach each other
            circular = _on_cycles(together[group.orbit[source[best]]])
            src, dst = np.concatenate([hops[label] for label in circular], axis=1)
            whole = joined(parts, part[src], part[dst])
            self.levels.append(Level(part, whole, src, dst))
            part = whole[part]


def _on_cycles(pointers: np.ndarray) -> list[int]:
    """Positions on the cycles that pointers from each position to one other make."""
    here = np.arange(len(pointers))
    for _ in range(len(pointers)):
        here = pointers[here]
    return np.unique(here).tolist()  # type: ignore[no-any-return]


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
            found = Contraction(kinds, price, inward=demand.collective is Collective.REDUCE_SCATTER)
            return float(found.prices @ group.orbit_sizes) * demand.bytes / demand.ranks
        case Collective.ALLREDUCE:
            both = Contraction(kinds, price).prices + Contraction(kinds, price, inward=True).prices
            return float(both.min()) * demand.bytes
        case Collective.BROADCAST | Collective.REDUCE:
            found = Contraction(kinds, price, inward=demand.collective is Collective.REDUCE)
            return float(found.prices[group.orbit[demand.root]]) * demand.bytes
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
