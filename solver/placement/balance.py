"""The lowest highest rank load: packing of groups into nodes, copies of each expert and packing of copies, jointly.

EPLB packs groups by their sum, gives spare slots to the largest copy, and packs copies heaviest first. What costs it
most on skewed loads is the second step: an expert with one copy more than its node has ranks loads one rank twice.
So here (1) groups are packed optimally where their packings can be listed; (2) inside each node several limits on
the copies of one expert are tried; (3) each packing of copies is improved by swaps; (4) where the heaviest node of a
layer is still away from the bound, single copies are moved from one expert to another. EPLB's own map is always a
candidate, so no layer ends above it.
"""

from __future__ import annotations

import numpy as np

from solver.placement.bound import rank_load_bound
from solver.placement.eplb import counts, eplb, place_copies, replicate
from solver.placement.nodes import pack_groups
from solver.placement.problem import Placement, Shape
from solver.placement.refine import refine

CLOSE = 2e-4
"""A packing this close to the bound, relatively, is not worked on further."""
WORTH = 2e-3
"""Other numbers of copies are tried only where the packing is further than this from the bound."""
PACKINGS = 3
"""How many packings of groups into nodes are worked out where the best one by sums stays away from the bound."""
LIMITS = 7
"""How many limits on the copies of one expert are tried."""
TRADES = 6
"""Experts considered on either side when a copy is moved from one to another."""
TRADE_ROUNDS = 3
TRADE_STEPS = 40
MOST_TRADE_WORK = 1_500_000
"""Swap candidates of one step of the search that trades may add; larger models go without them."""


def balance(loads: np.ndarray, shape: Shape) -> np.ndarray:
    """Place experts for the lowest highest rank load.

    Args:
        loads: [layers, experts], at least 0.
        shape: sizes; where groups divide by nodes, each node gets whole groups.

    Returns:
        phy2log [layers, slots]; on no layer worse than EPLB.
    """
    loads = loads.astype(np.float64)
    bound = rank_load_bound(loads, shape)
    best = eplb(loads, shape.slots, shape.groups, shape.nodes, shape.ranks)
    highest = Placement(shape, best).rank_loads(loads).max(axis=1)
    packings = _packings(loads, shape)
    for number in range(packings.shape[1]):
        rows = np.flatnonzero(highest > bound * (1 + (WORTH if number else CLOSE)))
        if not len(rows):
            break
        found = fill_packing(loads[rows], packings[rows, number], shape, bound[rows])
        value = Placement(shape, found).rank_loads(loads[rows]).max(axis=1)
        better = value < highest[rows] * (1 - 1e-9)
        best[rows[better]], highest[rows[better]] = found[better], value[better]
    return best


def _packings(loads: np.ndarray, shape: Shape) -> np.ndarray:
    """[layers, packings, nodes, groups per node] to try; without whole groups, all ranks count as one node."""
    if not shape.grouped:
        return np.zeros((len(loads), 1, 1, 1), dtype=np.int64)
    group_loads = loads.reshape(len(loads), shape.groups, -1).sum(axis=2)
    return pack_groups(group_loads, shape.nodes, PACKINGS)


def fill_packing(loads: np.ndarray, members: np.ndarray, shape: Shape, bound: np.ndarray) -> np.ndarray:
    """phy2log [layers, slots] with these groups [layers, nodes, groups per node] in each node."""
    layers, nodes, per_node = members.shape
    size = shape.experts // (nodes * per_node)
    experts_of = (members.reshape(layers * nodes, per_node, 1) * size + np.arange(size)).reshape(layers * nodes, -1)
    local = np.take_along_axis(loads, experts_of.reshape(layers, -1), axis=1).reshape(experts_of.shape)
    placed, _ = fill_nodes(local, shape.slots // nodes, shape.ranks // nodes, bound)
    return np.take_along_axis(experts_of, placed, axis=1).reshape(layers, shape.slots)


def fill_nodes(local: np.ndarray, slots: int, ranks: int, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose copies and pack them on ranks, in every node of every layer.

    Args:
        local: [layers * nodes, experts of a node] loads.
        slots: of a node.
        ranks: of a node.
        bound: [layers] lower bound of each layer's highest rank load; nodes below it are good enough.

    Returns:
        (local expert in each slot [layers * nodes, slots], highest rank load [layers * nodes]).
    """
    nodes = len(local) // len(bound)
    enough = np.repeat(bound, nodes) * (1 + CLOSE)
    fair = np.repeat(bound, nodes) * (1 + WORTH)
    copies_of = replicate(local, slots)
    placed, highest = _pack(local, copies_of, ranks, enough)
    largest = counts(copies_of, local.shape[1]).max(axis=1)
    for part in range(1, LIMITS + 1):
        limit = -(-largest * (LIMITS + 1 - part) // (LIMITS + 1))
        rows = np.flatnonzero((highest > fair) & (limit < largest) & (limit > 1))
        if len(rows):
            copies_of = replicate(local[rows], slots, limit[rows])
            _keep_better(rows, _pack(local[rows], copies_of, ranks, enough[rows]), placed, highest)
    for _ in range(TRADE_ROUNDS):
        heaviest = np.arange(len(bound)) * nodes + highest.reshape(-1, nodes).argmax(axis=1)
        rows = heaviest[highest[heaviest] > fair[heaviest]]
        if not len(rows) or not _trade(rows, local, ranks, enough, placed, highest):
            break
    return placed, highest


def _pack(
    local: np.ndarray, copies_of: np.ndarray, ranks: int, enough: np.ndarray, *, most: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    placed = place_copies(local, copies_of, ranks)
    share = local / counts(copies_of, local.shape[1])
    return refine(placed, np.take_along_axis(share, placed, axis=1), ranks, enough, most=most)


def _keep_better(
    rows: np.ndarray, found: tuple[np.ndarray, np.ndarray], placed: np.ndarray, highest: np.ndarray
) -> bool:
    better = found[1] < highest[rows] * (1 - 1e-9)
    placed[rows[better]] = found[0][better]
    highest[rows[better]] = found[1][better]
    return bool(better.any())


def _trade(
    rows: np.ndarray,
    local: np.ndarray,
    ranks: int,
    enough: np.ndarray,
    placed: np.ndarray,
    highest: np.ndarray,
) -> bool:
    """Move one copy between two experts in each of these rows, where that lowers the highest rank load."""
    slots = placed.shape[1]
    experts = local.shape[1]
    sides = min(TRADES, experts)
    if len(rows) * sides**2 * slots * (slots // ranks) > MOST_TRADE_WORK:
        return False
    count = counts(placed[rows], experts)
    loads = local[rows]
    takers = np.argsort(-loads / count, axis=1, kind="stable")[:, :sides]
    without = np.where(count > 1, loads / np.maximum(count - 1, 1), np.inf)
    givers = np.argsort(without, axis=1, kind="stable")[:, :sides]
    row, giver, taker = (axis.ravel() for axis in np.indices((len(rows), sides, sides)))
    giver, taker = givers[row, giver], takers[row, taker]
    legal = (giver != taker) & (count[row, giver] > 1)
    row, giver, taker = row[legal], giver[legal], taker[legal]
    if not len(row):
        return False
    traded = count[row]
    every = np.arange(len(row))
    traded[every, giver] -= 1
    traded[every, taker] += 1
    copies_of = np.repeat(np.tile(np.arange(experts), len(row)), traded.ravel()).reshape(len(row), slots)
    found, value = _pack(loads[row], copies_of, ranks, enough[rows][row], most=TRADE_STEPS)
    order = np.lexsort((every, value, row))
    first = order[np.unique(row[order], return_index=True)[1]]
    return _keep_better(rows[row[first]], (found[first], value[first]), placed, highest)
