"""Give a placement's nodes and ranks to real nodes and ranks: cheapest traffic first, then most experts stay."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from solver.placement.problem import Placement, Shape
from solver.placement.traffic import Traffic


def relabel(
    placed: np.ndarray, loads: np.ndarray, shape: Shape, traffic: Traffic, previous: np.ndarray | None
) -> np.ndarray:
    """Permute whole ranks (inside nodes) and whole nodes; rank loads and what shares a node stay as they are.

    Args:
        placed: [layers, slots].
        loads: [layers, experts].
        shape: sizes.
        traffic: tokens per source rank and prices decide first, where known.
        previous: [layers, slots] map whose experts should stay where they are; None: there is none.

    Returns:
        [layers, slots], with the experts that stayed on their rank in their old slots.
    """
    if previous is None and traffic.sources is None:
        return placed
    cost = _costs(Placement(shape, placed), loads, traffic, previous)
    nodes = 1 if traffic.together is None and traffic.sources is None and not shape.grouped else shape.nodes
    held = placed.reshape(len(placed), shape.ranks, -1)
    answer = np.empty_like(held)
    for layer in range(len(placed)):
        answer[layer, _assign(cost[layer], nodes)] = held[layer]
    result = answer.reshape(placed.shape)
    return result if previous is None else align(result, previous, shape)


def _costs(placement: Placement, loads: np.ndarray, traffic: Traffic, previous: np.ndarray | None) -> np.ndarray:
    """[layers, contents, ranks] cost of giving each content to each rank."""
    shape = placement.shape
    cost = np.zeros((len(placement.phy2log), shape.ranks, shape.ranks))
    if traffic.sources is not None:
        cost += np.swapaxes(traffic.sources @ placement.split, 1, 2) @ traffic.price_of(shape)
    if previous is not None:
        before = (Placement(shape, previous).held > 0).astype(np.float64)
        stay = (placement.held > 0).astype(np.float64) @ np.swapaxes(before, 1, 2)
        scale = np.maximum(loads.sum(axis=1), 1.0)[:, None, None] * 1e-9  # ties only, where traffic decides
        cost -= stay * (scale if traffic.sources is not None else 1.0)
    return cost


def _assign(cost: np.ndarray, nodes: int) -> np.ndarray:
    """[contents] the rank each content goes to; the contents of one node stay together."""
    ranks = len(cost)
    if nodes == 1:
        return np.asarray(linear_sum_assignment(cost)[1])
    size = ranks // nodes
    blocks = cost.reshape(nodes, size, nodes, size)
    inner = np.empty((nodes, nodes, size), dtype=np.int64)
    total = np.empty((nodes, nodes))
    for content in range(nodes):
        for node in range(nodes):
            block = blocks[content, :, node]
            rows, columns = linear_sum_assignment(block)
            inner[content, node] = columns
            total[content, node] = block[rows, columns].sum()
    chosen = linear_sum_assignment(total)[1]
    return np.asarray((chosen[:, None] * size + inner[np.arange(nodes), chosen]).ravel())


def align(placed: np.ndarray, previous: np.ndarray, shape: Shape) -> np.ndarray:
    """Reorder the slots inside each rank so that experts that stayed keep their slots."""
    room = shape.slots_per_rank
    new = placed.reshape(-1, room).copy()
    old = previous.reshape(-1, room)
    for now, before in zip(new, old, strict=True):
        waiting = sorted(now.tolist())
        slots = [-1] * room
        for slot, expert in enumerate(before.tolist()):
            if expert in waiting:
                waiting.remove(expert)
                slots[slot] = expert
        rest = iter(waiting)
        now[:] = [next(rest) if expert < 0 else expert for expert in slots]
    return new.reshape(placed.shape)


def moves(placed: np.ndarray, previous: np.ndarray, shape: Shape) -> np.ndarray:
    """[layers] experts that a rank must fetch from another: it holds them now and did not before."""
    arrived = (Placement(shape, placed).held > 0) & (Placement(shape, previous).held == 0)
    return np.asarray(arrived.sum(axis=(1, 2)))
