"""Few changes to a placement that is already there, instead of a new one."""

from __future__ import annotations

import numpy as np

from solver.placement.balance import fill_packing
from solver.placement.eplb import counts
from solver.placement.problem import Placement, Shape
from solver.placement.refine import refine


def repairs(
    previous: np.ndarray, fresh: np.ndarray, loads: np.ndarray, shape: Shape, limit: np.ndarray
) -> list[np.ndarray]:
    """Maps made from the previous one, in order of growing change.

    Args:
        previous: [layers, slots] what is there.
        fresh: [layers, slots] a balanced map, whose number of copies is worth having.
        loads: [layers, experts].
        shape: sizes.
        limit: [layers] highest rank load at which the swaps may stop.

    Returns:
        candidates [layers, slots]: the same copies swapped between ranks; the copies of the balanced map, with as
        few slots changed as possible, then swapped. Their loads may still be above the limit.
    """
    nodes = shape.nodes if shape.grouped else 1
    if shape.grouped:
        members = groups_of_nodes(previous, shape)
        if members is None:
            return []
        fresh = fill_packing(loads.astype(np.float64), members, shape, limit / (1 + 1e-3))
    changed = _with_copies_of(previous, fresh, loads, shape, nodes)
    return [_swapped(start, loads, shape, nodes, limit) for start in (previous, changed)]


def groups_of_nodes(placed: np.ndarray, shape: Shape) -> np.ndarray | None:
    """[layers, nodes, groups per node] the groups each node holds; None when groups are split between nodes."""
    layers = len(placed)
    group = placed.reshape(layers * shape.nodes, -1) // (shape.experts // shape.groups)
    present = counts(group, shape.groups) > 0
    if (present.sum(axis=1) != shape.groups // shape.nodes).any():
        return None
    return np.asarray(np.nonzero(present)[1].reshape(layers, shape.nodes, -1))


def _swapped(start: np.ndarray, loads: np.ndarray, shape: Shape, nodes: int, limit: np.ndarray) -> np.ndarray:
    layers = len(start)
    share = np.take_along_axis(loads / counts(start, shape.experts), start, axis=1)
    rows = (layers * nodes, shape.slots // nodes)
    items, _ = refine(start.reshape(rows), share.reshape(rows), shape.ranks // nodes, np.repeat(limit, nodes))
    return items.reshape(start.shape)


def _with_copies_of(previous: np.ndarray, fresh: np.ndarray, loads: np.ndarray, shape: Shape, nodes: int) -> np.ndarray:
    """The previous map with as many copies of each expert as the fresh one has, node by node."""
    rows = (len(previous) * nodes, shape.slots // nodes)
    have, want = (counts(table.reshape(rows), shape.experts) for table in (previous, fresh))
    result = previous.reshape(rows).copy()
    rank = np.arange(rows[1]) // shape.slots_per_rank
    for row in np.flatnonzero((have != want).any(axis=1)):
        share = loads[row // nodes] / np.maximum(want[row], 1)
        load = np.bincount(rank, share[result[row]])
        free: list[int] = []
        for expert in np.flatnonzero(have[row] > want[row]):
            slots = np.flatnonzero(result[row] == expert)
            heaviest_first = slots[np.argsort(-load[rank[slots]], kind="stable")]
            dropped = heaviest_first[: have[row, expert] - want[row, expert]]
            load[rank[dropped]] -= share[expert]
            free.extend(dropped.tolist())
        added = np.repeat(np.arange(shape.experts), np.maximum(want[row] - have[row], 0))
        for expert in added[np.argsort(-share[added], kind="stable")]:
            slot = min(free, key=lambda place: (load[rank[place]], place))
            free.remove(slot)
            load[rank[slot]] += share[expert]
            result[row, slot] = expert
    return result.reshape(previous.shape)


def highest(placed: np.ndarray, loads: np.ndarray, shape: Shape) -> np.ndarray:
    """[layers] highest rank load."""
    return np.asarray(Placement(shape, placed).rank_loads(loads).max(axis=1))
