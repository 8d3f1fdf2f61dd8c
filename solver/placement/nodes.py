"""Packing whole expert groups into nodes: every way where they are few, heaviest-first and swaps where not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import factorial

import numpy as np

from solver.placement.packing import pack
from solver.placement.refine import refine

MOST_PACKINGS = 6000
"""Packings are listed one by one up to this many (8 groups in 4 nodes have 105, 8 in 2 have 35)."""


def packings_count(groups: int, nodes: int) -> int:
    """How many ways there are to pack groups into unnamed nodes, equally many each."""
    per_node = groups // nodes
    return int(factorial(groups) // (factorial(per_node) ** nodes * factorial(nodes)))


@lru_cache(maxsize=16)
def all_packings(groups: int, nodes: int) -> np.ndarray:
    """[packings, nodes, groups per node] every packing once, in lexicographic order; do not write into it."""
    return np.array(list(_packings(tuple(range(groups)), groups // nodes)), dtype=np.int64)


def _packings(rest: tuple[int, ...], per_node: int) -> Iterator[list[tuple[int, ...]]]:
    if not rest:
        yield []
        return
    first, others = rest[0], rest[1:]
    for mates in combinations(others, per_node - 1):
        left = tuple(group for group in others if group not in mates)
        for packing in _packings(left, per_node):
            yield [(first, *mates), *packing]


def pack_groups(group_loads: np.ndarray, nodes: int, most: int = 1) -> np.ndarray:
    """The packings with the lightest heaviest node; among equals, with the lightest next heaviest nodes.

    Args:
        group_loads: [layers, groups].
        nodes: a divisor of ``groups``.
        most: how many packings, each with another heaviest load; fewer exist where groups are few.

    Returns:
        [layers, packings, nodes, groups per node] the groups of each node, best packing first. The first one is
        optimal where packings are at most ``MOST_PACKINGS``; above that only one is returned.
    """
    layers, groups = group_loads.shape
    per_node = groups // nodes
    if per_node == 1 or nodes == 1:
        return np.tile(np.arange(groups).reshape(1, 1, nodes, per_node), (layers, 1, 1, 1))
    if packings_count(groups, nodes) > MOST_PACKINGS:
        return _pack_by_swaps(group_loads, nodes)[:, None]
    packings = all_packings(groups, nodes)
    chosen = np.empty((layers, most, nodes, per_node), dtype=np.int64)
    for layer, row in enumerate(group_loads):
        heaviest_first = -np.sort(-row[packings].sum(axis=2), axis=1)
        order = np.lexsort(heaviest_first.T[::-1])
        distinct = np.unique(heaviest_first[order, 0], return_index=True)[1][:most]
        chosen[layer] = packings[order[np.resize(distinct, most)]]
    return chosen


def _pack_by_swaps(group_loads: np.ndarray, nodes: int) -> np.ndarray:
    layers, groups = group_loads.shape
    node, place = pack(group_loads, nodes)
    members = np.empty((layers, groups), dtype=np.int64)
    np.put_along_axis(members, node * (groups // nodes) + place, np.tile(np.arange(groups), (layers, 1)), axis=1)
    mean = group_loads.sum(axis=1) / nodes
    members, _ = refine(members, np.take_along_axis(group_loads, members, axis=1), nodes, mean)
    return members.reshape(layers, nodes, -1)
