"""The cheapest way to deliver one block when every hop has a price.

A hop is a direct send between two ranks that have a route. Prices come as a ``[ranks, ranks]`` matrix of weights,
infinite where there is no hop. These are the pricing problems of column generation and, with the same prices, the
proof of a bound (kind ``lengths`` of the certificate).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synth.collective.demand import Collective, Demand


def shortest_paths(weights: np.ndarray) -> np.ndarray:
    """[ranks, ranks] length of the shortest path of hops for each ordered pair (Floyd, 1962)."""
    distance = weights.copy()
    np.fill_diagonal(distance, 0.0)
    for middle in range(len(distance)):
        np.minimum(distance, distance[:, middle, None] + distance[None, middle, :], out=distance)
    return distance


def min_arborescence(weights: np.ndarray, root: int) -> tuple[float, np.ndarray]:
    """The cheapest out-tree from ``root`` to all ranks; for in-trees pass ``weights.T``.

    Args:
        weights: [ranks, ranks] price of each hop, infinite where there is none.
        root: rank the tree starts at.

    Returns:
        (price of the tree, [ranks] parent of each rank, -1 for the root); the price is infinite, and the parents
        mean nothing, where the root cannot reach everyone.
    """
    prices, parents = min_arborescences(weights, [root])
    return float(prices[0]), parents[0]


def min_arborescences(weights: np.ndarray, roots: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest out-tree from each of several roots, see :func:`min_arborescence`.

    Source: Gabow, Galil, Spencer, Tarjan, "Efficient algorithms for finding minimum spanning trees in undirected
    and directed graphs", 1986: contracting a strongly connected graph to one vertex does not depend on the root,
    so all roots share it.

    Returns:
        ([roots] prices, [roots, ranks] parents).
    """
    count = len(weights)
    contraction = _contract(weights)
    parents = np.empty((len(roots), count), dtype=np.int64)
    if contraction is None:
        for row, root in enumerate(roots):
            parents[row] = _rooted(weights, int(root))
    else:
        for row, root in enumerate(roots):
            parents[row] = _expand(contraction, int(root), count)
    steps = weights[np.maximum(parents, 0), np.arange(count)]
    steps[parents < 0] = np.inf
    steps[np.arange(len(roots)), roots] = 0.0
    return steps.sum(axis=1), parents


class _Contraction(NamedTuple):
    """Vertices and the cycles they were contracted to, each with the hop that enters it.

    ``within[v]`` is the cycle that swallowed v (-1 for the last one), ``inside[c]`` what cycle c swallowed.
    """

    within: list[int]
    inside: list[list[int]]
    source: list[int]
    into: list[int]


def _contract(weights: np.ndarray) -> _Contraction | None:
    """Contract until one vertex is left; None where the graph is not strongly connected."""
    count = len(weights)
    prices: list[np.ndarray | None] = list(weights.T.copy())  # prices[u][x]: from x into u, chosen hops subtracted
    ends: list[np.ndarray | None] = [np.full(count, vertex) for vertex in range(count)]
    owner = np.arange(count)  # the cycle each vertex is in now
    within = [-1] * count
    inside: list[list[int]] = [[] for _ in range(count)]
    members: list[np.ndarray] = [np.array([vertex]) for vertex in range(count)]
    for vertex in range(count):
        prices[vertex][vertex] = np.inf  # type: ignore[index]
    source, into, chosen = [-1] * count, [-1] * count, [0.0] * count
    path = [0]
    on_path = {0}
    while len(members[path[-1]]) < count:
        top = path[-1]
        row = prices[top]
        assert row is not None
        x = int(row.argmin())
        if not row[x] < np.inf:
            return None
        source[top], into[top], chosen[top] = x, int(ends[top][x]), float(row[x])  # type: ignore[index]
        below = int(owner[x])
        if below not in on_path:
            path.append(below)
            on_path.add(below)
            continue
        cycle = path[path.index(below) :]
        del path[-len(cycle) :]
        on_path.difference_update(cycle)
        stacked = np.stack([prices[u] - chosen[u] for u in cycle])  # type: ignore[misc, operator]
        best = stacked.argmin(axis=0)
        columns = np.arange(count)
        new = len(within)
        everyone = np.concatenate([members[u] for u in cycle])
        merged = stacked[best, columns]
        merged[everyone] = np.inf
        prices.append(merged)
        ends.append(np.stack([ends[u] for u in cycle])[best, columns])  # type: ignore[misc]
        for u in cycle:
            within[u] = new
            prices[u] = ends[u] = None
        owner[everyone] = new
        within.append(-1)
        inside.append(cycle)
        members.append(everyone)
        source.append(-1)
        into.append(-1)
        chosen.append(0.0)
        path.append(new)
        on_path.add(new)
    return _Contraction(within, inside, source, into)


def _expand(contraction: _Contraction, root: int, count: int) -> list[int]:
    """Parents of the tree from one root: open every cycle at the vertex where its hop enters."""
    within, inside, source, into = contraction
    parents = [-1] * count
    waiting: list[int] = []

    def open_around(vertex: int, top: int) -> None:
        while vertex != top:
            cycle = within[vertex]
            if cycle < 0:
                return
            waiting.extend(u for u in inside[cycle] if u != vertex)
            vertex = cycle

    open_around(root, -1)
    while waiting:
        part = waiting.pop()
        vertex = into[part]
        parents[vertex] = source[part]
        open_around(vertex, part)
    return parents


def _rooted(weights: np.ndarray, root: int) -> np.ndarray:
    """Parents for one root of a graph that need not be strongly connected; all -1 where it cannot reach everyone.

    Source: Edmonds, "Optimum branchings", 1967; contraction on a dense matrix.
    """
    matrix = weights.astype(np.float64, copy=True)
    np.fill_diagonal(matrix, np.inf)
    matrix[:, root] = np.inf
    parents = _branching(matrix, root)
    return np.full(len(weights), -1) if parents is None else parents


def _branching(matrix: np.ndarray, root: int) -> np.ndarray | None:
    """Parents of the cheapest branching, or None; ``matrix`` has no hops into the root."""
    count = len(matrix)
    parents: np.ndarray = matrix.argmin(axis=0)
    entering = matrix[parents, np.arange(count)]
    entering[root] = 0.0
    parents[root] = -1
    if not np.isfinite(entering).all():
        return None
    cycles = _cycles(parents)
    if not cycles:
        return parents
    group = np.full(count, -1)
    for number, cycle in enumerate(cycles):
        group[cycle] = number
    singles = np.flatnonzero(group < 0)
    group[singles] = len(cycles) + np.arange(len(singles))
    reduced = matrix - entering
    # contract rows (cheapest way out of each cycle), then columns (cheapest way in)
    row_of = np.empty((len(cycles), count), dtype=np.int64)
    rows = np.empty((len(cycles) + len(singles), count))
    for number, cycle in enumerate(cycles):
        best = reduced[cycle].argmin(axis=0)
        row_of[number] = cycle[best]
        rows[number] = reduced[row_of[number], np.arange(count)]
    rows[len(cycles) :] = reduced[singles]
    column_of = np.empty((len(rows), len(cycles)), dtype=np.int64)
    small = np.empty((len(rows), len(rows)))
    for number, cycle in enumerate(cycles):
        best = rows[:, cycle].argmin(axis=1)
        column_of[:, number] = cycle[best]
        small[:, number] = rows[np.arange(len(rows)), column_of[:, number]]
    small[:, len(cycles) :] = rows[:, singles]
    np.fill_diagonal(small, np.inf)
    inner = _branching(small, int(group[root]))
    if inner is None:
        return None
    for target, source in enumerate(inner):
        if source < 0:
            continue
        into = column_of[source, target] if target < len(cycles) else singles[target - len(cycles)]
        parents[into] = row_of[source, into] if source < len(cycles) else singles[source - len(cycles)]
    return parents


def _cycles(parents: np.ndarray) -> list[np.ndarray]:
    """Cycles of the parent pointers."""
    state = np.zeros(len(parents), dtype=np.int8)  # 0 new, 1 on the current walk, 2 done
    pointers = parents.tolist()
    cycles = []
    for start in range(len(pointers)):
        walk = []
        vertex = start
        while vertex >= 0 and state[vertex] == 0:
            state[vertex] = 1
            walk.append(vertex)
            vertex = pointers[vertex]
        if vertex >= 0 and state[vertex] == 1:
            cycles.append(np.array(walk[walk.index(vertex) :]))
        state[walk] = 2
    return cycles


def cheapest_deliveries(weights: np.ndarray, demand: Demand) -> np.ndarray:
    """[blocks] least price at which each block of ``demand.blocks`` can be delivered.

    Ranks beyond ``demand.ranks`` are helpers: they relay, and trees need not reach them. With helpers the price of
    a tree is replaced by a lower bound of it (its Steiner tree is hard to find), so proofs stay right but weaker.

    Args:
        weights: [ranks and helpers, ranks and helpers] price of each hop.
        demand: what must be delivered.
    """
    blocks = demand.blocks
    match demand.collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            prices: np.ndarray = shortest_paths(weights)[blocks.origin, blocks.target]
            return prices
        case Collective.ALLGATHER | Collective.BROADCAST:
            return least_tree_prices(weights, blocks.origin, demand.ranks)
        case Collective.REDUCE_SCATTER | Collective.REDUCE:
            return least_tree_prices(weights.T, blocks.target, demand.ranks)
        case Collective.ALLREDUCE:
            roots = np.arange(len(weights))
            return np.array(
                [
                    (
                        least_tree_prices(weights, roots, demand.ranks)
                        + least_tree_prices(weights.T, roots, demand.ranks)
                    ).min()
                ]
            )


def least_tree_prices(weights: np.ndarray, roots: np.ndarray, members: int) -> np.ndarray:
    """[roots] price of the cheapest tree from each root to all members, or less where there are helpers."""
    if members == len(weights):
        return min_arborescences(weights, roots)[0]
    distance = shortest_paths(weights)[roots, :members].max(axis=1)
    inward = (weights + np.where(np.eye(len(weights), dtype=bool), np.inf, 0.0))[:, :members].min(axis=0)
    entered = np.array([np.delete(inward, root).sum() if root < members else inward.sum() for root in roots.tolist()])
    return np.asarray(np.maximum(distance, entered))
