"""Lower bounds on the highest rank load that hold for every legal placement.

Two facts bound one node: its load spreads at best evenly over its ranks, and its slots are few. For the second, let
T be the highest rank load. No copy is larger than T, so expert e needs at least ``ceil(load_e / T)`` copies, and the
copies of all experts must fit the slots; the smallest T that allows it is found exactly among the values load_e / k.
With expert groups a node holds whole groups, so the bound of a layer is the best packing of groups into nodes, each
node bounded as above: exact by listing all packings where they are few, otherwise a relaxation.
"""

from __future__ import annotations

import numpy as np

from solver.placement.nodes import MOST_PACKINGS, all_packings, packings_count
from solver.placement.problem import Shape


def rank_load_bound(loads: np.ndarray, shape: Shape) -> np.ndarray:
    """[layers] no placement has a highest rank load below this."""
    if not shape.grouped or shape.nodes == 1:
        return node_bound(loads, shape.slots, shape.ranks)
    layers, groups, nodes = len(loads), shape.groups, shape.nodes
    by_group = loads.reshape(layers, groups, -1)
    ranks = shape.ranks_per_node
    if packings_count(groups, nodes) > MOST_PACKINGS:
        return _packing_relaxation(by_group.sum(axis=2), nodes) / ranks
    packings = all_packings(groups, nodes)
    contents, which = np.unique(packings.reshape(-1, groups // nodes), axis=0, return_inverse=True)
    inside = by_group[:, contents].reshape(layers * len(contents), -1)
    bound = node_bound(inside, shape.slots // nodes, ranks).reshape(layers, len(contents))
    return np.asarray(bound[:, which.reshape(packings.shape[:2])].max(axis=2).min(axis=1))


def node_bound(loads: np.ndarray, slots: int, ranks: int) -> np.ndarray:
    """[rows] bound for experts [rows, experts] that share these slots and ranks."""
    if slots == loads.shape[1]:
        return _packing_relaxation(loads.astype(np.float64), ranks)  # no copies: experts are packed whole
    even = loads.sum(axis=1) / ranks
    return np.asarray(np.maximum(even, copies_bound(loads, slots, even)))


def copies_bound(loads: np.ndarray, slots: int, floor: np.ndarray) -> np.ndarray:
    """[rows] smallest possible largest copy, where it is above ``floor``; ``floor`` where it is not.

    The greedy that always splits the expert with the largest copy is optimal for this (apportionment by the
    largest quotient), and only experts above ``floor`` can matter.
    """
    experts = loads.shape[1]
    answer = np.array(floor, dtype=np.float64)
    needed = np.ceil(loads / np.where(floor > 0, floor, np.inf)[:, None] - 1e-12).clip(1).sum(axis=1)
    for row in np.flatnonzero(needed > slots):
        share = loads[row].astype(np.float64)
        count = np.ones(experts)
        for _ in range(slots - experts):
            hottest = int(share.argmax())
            count[hottest] += 1
            share[hottest] = loads[row, hottest] / count[hottest]
        answer[row] = max(answer[row], float(share.max()))
    return answer


def _packing_relaxation(group_loads: np.ndarray, nodes: int) -> np.ndarray:
    """[layers] bound on the heaviest node when packings are too many to list.

    For every k: among the ``k * nodes + 1`` heaviest groups some node holds k + 1, at best the lightest of them,
    and fills up with the lightest groups of all.
    """
    per_node = group_loads.shape[1] // nodes
    heavy = -np.sort(-group_loads, axis=1)
    bound = heavy.sum(axis=1) / nodes
    for together in range(1, per_node + 1):
        last = (together - 1) * nodes + 1
        held = heavy[:, last - together : last].sum(axis=1)
        filler = heavy[:, heavy.shape[1] - (per_node - together) :].sum(axis=1)
        bound = np.maximum(bound, held + filler)
    return np.asarray(bound)
