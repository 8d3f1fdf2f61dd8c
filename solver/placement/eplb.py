"""EPLB as a baseline, written from its description: pack groups into nodes, copy the hottest, pack copies on ranks.

Source: DeepSeek-AI, "EPLB: expert parallelism load balancer", 2025. Where groups divide by nodes the three steps run
inside each node; otherwise all ranks count as one node and all experts as one group.
"""

from __future__ import annotations

import numpy as np

from solver.placement.packing import pack


def eplb(loads: np.ndarray, slots: int, groups: int, nodes: int, ranks: int) -> np.ndarray:
    """Place copies of experts as EPLB does.

    Args:
        loads: [layers, experts] load of each logical expert.
        slots: physical experts in all; a multiple of ``ranks``.
        groups: expert groups, consecutive experts each.
        nodes: machines, equally many ranks each.
        ranks: in all.

    Returns:
        phy2log [layers, slots]: the logical expert in each slot; rank r owns slots r * slots / ranks onwards.
    """
    layers, experts = loads.shape
    if groups % nodes:
        groups, nodes = 1, 1
    size = experts // groups
    weights = loads.astype(np.float64)
    node, place = pack(weights.reshape(layers, groups, size).sum(axis=2), nodes)
    per_node = groups // nodes
    members = np.empty((layers, groups), dtype=np.int64)
    np.put_along_axis(members, node * per_node + place, np.arange(groups)[None].repeat(layers, 0), axis=1)
    experts_of = (members[:, :, None] * size + np.arange(size)).reshape(layers * nodes, experts // nodes)
    local = np.take_along_axis(weights, experts_of.reshape(layers, experts), axis=1).reshape(experts_of.shape)
    copies_of = replicate(local, slots // nodes)
    placed = place_copies(local, copies_of, ranks // nodes)
    return np.take_along_axis(experts_of, placed, axis=1).reshape(layers, slots)


def replicate(weights: np.ndarray, slots: int, most: np.ndarray | None = None) -> np.ndarray:
    """Give each spare slot to the expert with the highest load per copy.

    Args:
        weights: [rows, experts].
        slots: copies in all, at least one per expert.
        most: [rows] no expert of the row gets more copies than this, as long as another can take them.

    Returns:
        [rows, slots] the expert of each copy: first copies in order, then the added ones in order of adding.
    """
    rows, experts = weights.shape
    copies_of = np.empty((rows, slots), dtype=np.int64)
    copies_of[:, :experts] = np.arange(experts)
    count = np.ones((rows, experts))
    share = weights.astype(np.float64)
    every = np.arange(rows)
    for slot in range(experts, slots):
        hottest = share.argmax(axis=1)
        copies_of[:, slot] = hottest
        now = count[every, hottest] + 1
        count[every, hottest] = now
        last = 1.0 if most is None else np.where(now < most, 1.0, 1e-12)  # a full expert goes behind all others
        share[every, hottest] = weights[every, hottest] / now * last
    return copies_of


def place_copies(weights: np.ndarray, copies_of: np.ndarray, ranks: int) -> np.ndarray:
    """Pack copies on ranks: [rows, slots] the expert in each slot, ranks one after the other."""
    load = np.take_along_axis(weights / counts(copies_of, weights.shape[1]), copies_of, axis=1)
    rank, place = pack(load, ranks)
    placed = np.empty_like(copies_of)
    np.put_along_axis(placed, rank * (copies_of.shape[1] // ranks) + place, copies_of, axis=1)
    return placed


def counts(placed: np.ndarray, experts: int) -> np.ndarray:
    """[rows, experts] how many of a row's slots hold each expert."""
    rows = placed.shape[0]
    flat = (placed + np.arange(rows)[:, None] * experts).ravel()
    return np.bincount(flat, minlength=rows * experts).reshape(rows, experts)
