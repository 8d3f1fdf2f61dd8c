"""The cheapest way to deliver one block when every hop has a price.

A hop is a direct send between two ranks that have a route. Prices come as a ``[ranks, ranks]`` matrix of weights,
infinite where there is no hop. These are the pricing problems of column generation and, with the same prices, the
proof of a bound (kind ``lengths`` of the certificate).
"""

from __future__ import annotations

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

    Source: Edmonds, "Optimum branchings", 1967; contraction on a dense matrix.

    Args:
        weights: [ranks, ranks] price of each hop, infinite where there is none.
        root: rank the tree starts at.

    Returns:
        (price of the tree, [ranks] parent of each rank, -1 for the root); the price is infinite, and the parents
        mean nothing, where the root cannot reach everyone.
    """
    matrix = weights.astype(np.float64, copy=True)
    np.fill_diagonal(matrix, np.inf)
    matrix[:, root] = np.inf
    parents = _branching(matrix, root)
    if parents is None:
        return float("inf"), np.full(len(weights), -1)
    others = np.arange(len(weights)) != root
    return float(weights[parents[others], np.flatnonzero(others)].sum()), parents


def _branching(matrix: np.ndarray, root: int) -> np.ndarray | None:
    """Parents of the cheapest branching, or None; ``matrix`` has no hops into the root."""
    count = len(matrix)
    parents = matrix.argmin(axis=0)
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
            return shortest_paths(weights)[blocks.origin, blocks.target]
        case Collective.ALLGATHER | Collective.BROADCAST:
            return np.array([_out_tree(weights, int(origin), demand.ranks) for origin in blocks.origin])
        case Collective.REDUCE_SCATTER | Collective.REDUCE:
            return np.array([_out_tree(weights.T, int(target), demand.ranks) for target in blocks.target])
        case Collective.ALLREDUCE:
            roots = range(len(weights))
            return np.array(
                [min(_out_tree(weights, r, demand.ranks) + _out_tree(weights.T, r, demand.ranks) for r in roots)]
            )


def _out_tree(weights: np.ndarray, root: int, members: int) -> float:
    if members == len(weights):
        return min_arborescence(weights, root)[0]
    distance = shortest_paths(weights)[root, :members]
    inward = weights + np.where(np.eye(len(weights), dtype=bool), np.inf, 0.0)
    entered = np.delete(np.arange(members), root) if root < members else np.arange(members)
    return float(max(distance.max(), inward[:, entered].min(axis=0).sum()))
