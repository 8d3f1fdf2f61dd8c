"""Less traffic between nodes at the same highest rank load.

Experts that tokens choose together should share a node, because a token goes to a node once; and an expert should be
near the ranks that use it. Without expert groups single copies swap nodes as long as the value grows and no node
gets more than its share of the load (Kernighan and Lin, 1970, with loads as a limit); ranks inside a node are packed
again afterwards. With groups the best packing within the load limit is taken.
"""

from __future__ import annotations

import numpy as np

from solver.placement.balance import fill_packing
from solver.placement.eplb import counts
from solver.placement.nodes import MOST_PACKINGS, all_packings, packings_count
from solver.placement.packing import pack
from solver.placement.problem import Placement, Shape
from solver.placement.refine import refine
from solver.placement.traffic import Traffic

MOST_PASSES = 200
SWAPS_PER_PASS = 24
TRIES = 4
"""Packings, or load limits, that are tried per layer before the balanced map is kept."""


def localise(placed: np.ndarray, loads: np.ndarray, shape: Shape, traffic: Traffic, limit: np.ndarray) -> np.ndarray:
    """Rearrange maps for less traffic between nodes.

    Args:
        placed: [layers, slots] balanced maps.
        loads: [layers, experts].
        shape: sizes; one node has nothing to gain.
        traffic: what is known.
        limit: [layers] highest rank load that is accepted.

    Returns:
        [layers, slots]; a layer that cannot gain within its limit stays as it was.
    """
    if shape.nodes == 1 or not traffic.known:
        return placed
    answer = placed.copy()
    work = _by_packings if shape.grouped else _by_swaps
    for layer in range(len(placed)):
        pull, near = _values(loads[layer], shape, traffic, layer)
        found = work(placed[layer], loads[layer], shape, pull, near, float(limit[layer]))
        if found is not None:
            answer[layer] = found
    return answer


def _values(loads: np.ndarray, shape: Shape, traffic: Traffic, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens saved: ``pull`` [experts, experts] by a shared node, ``near`` [experts, nodes] by the node itself.

    A token with k experts in one node saves k - 1 sends but has k (k - 1) / 2 pairs, so a pair counts 2 / k.
    """
    experts, nodes = shape.experts, shape.nodes
    pull = np.zeros((experts, experts))
    near = np.zeros((experts, nodes))
    if traffic.together is not None:
        chosen = 1 + traffic.together[layer].sum() / max(float(loads.sum()), 1.0)
        away = (nodes - 1) / nodes
        pull = traffic.together[layer] * (2 / max(chosen, 2.0) * away)
        np.fill_diagonal(pull, 0.0)
    if traffic.sources is not None:
        by_rank = traffic.sources[layer].T @ traffic.price_of(shape)
        near = -by_rank.reshape(experts, nodes, -1).mean(axis=2)
    return pull, near


def value(held: np.ndarray, pull: np.ndarray, near: np.ndarray) -> float:
    """Tokens saved when each node holds these shares of the experts, [experts, nodes]."""
    return float((held * (pull @ held)).sum() / 2 + (held * near).sum())


def crossings(placed: np.ndarray, loads: np.ndarray, shape: Shape, traffic: Traffic) -> np.ndarray:
    """[layers] tokens (or their price) that go between nodes, counting a node once per token, estimated from pairs."""
    answer = np.empty(len(placed))
    for layer, row in enumerate(placed):
        pull, near = _values(loads[layer], shape, traffic, layer)
        apart = 0.0 if traffic.sources is not None else float(loads[layer].sum()) * (shape.nodes - 1) / shape.nodes
        answer[layer] = apart - value(_held(row, shape), pull, near)
    return answer


def _by_swaps(
    placed: np.ndarray, loads: np.ndarray, shape: Shape, pull: np.ndarray, near: np.ndarray, limit: float
) -> np.ndarray | None:
    count = counts(placed[None], shape.experts)[0]
    share = loads / count
    mean = loads.sum() / shape.ranks
    for attempt in range(TRIES):
        node_limit = (mean + (limit - mean) * (1 - attempt / TRIES)) * shape.ranks_per_node
        moved = _swap(placed, share, count, pull, near, shape, node_limit)
        if moved is None:
            return None
        packed = pack_inside(moved, share, shape, limit)
        if packed is not None:
            return packed
    return None


def _swap(
    placed: np.ndarray,
    share: np.ndarray,
    count: np.ndarray,
    pull: np.ndarray,
    near: np.ndarray,
    shape: Shape,
    node_limit: float,
) -> np.ndarray | None:
    """Swap copies between nodes, best first, until nothing helps; None when nothing helped at all."""
    state = _Nodes(placed, share, 1.0 / count, pull, near, shape, node_limit)
    for _ in range(MOST_PASSES):
        gain = state.gains()
        partner = gain.argmax(axis=1)
        best = gain[np.arange(shape.slots), partner]
        order = np.argsort(-best, kind="stable")[:SWAPS_PER_PASS]
        done = [state.swap(int(slot), int(partner[slot])) for slot in order if best[slot] > 0]
        if not any(done):
            break
    return state.placed if state.swaps else None


class _Nodes:
    """Which node holds what, with everything a swap's gain needs kept up to date.

    Args:
        placed: [slots] expert of each slot.
        share: [experts] load of one copy.
        part: [experts] share of the expert's tokens that one copy serves.
        pull: [experts, experts] tokens saved by a shared node.
        near: [experts, nodes] tokens saved by the node itself.
        shape: sizes.
        node_limit: load no node may be brought above.
    """

    def __init__(
        self,
        placed: np.ndarray,
        share: np.ndarray,
        part: np.ndarray,
        pull: np.ndarray,
        near: np.ndarray,
        shape: Shape,
        node_limit: float,
    ) -> None:
        self.placed = placed.copy()
        self.share, self.part, self.pull = share, part, pull
        self.node = np.arange(shape.slots) // (shape.slots // shape.nodes)
        self.load = np.bincount(self.node, share[placed], minlength=shape.nodes)
        self.limit = np.maximum(self.load, node_limit)
        held = np.zeros((shape.experts, shape.nodes))
        np.add.at(held, (placed, self.node), part[placed])
        self.lean = pull @ held + near
        self.apart = self.node[:, None] != self.node
        self.least = 1e-9 * max(1.0, float(np.abs(self.lean).max()))
        self.swaps = 0

    def gains(self) -> np.ndarray:
        """[slots, slots] tokens saved by each swap; -inf where it is not allowed."""
        weight, load = self.part[self.placed], self.share[self.placed]
        to_other = (self.lean[self.placed] - self.lean[self.placed, self.node][:, None]) * weight[:, None]
        gain = to_other[:, self.node]
        gain = gain + gain.T - 2 * self.pull[np.ix_(self.placed, self.placed)] * (weight[:, None] * weight)
        fits = (self.load - self.limit)[self.node][:, None] <= load[:, None] - load
        return np.where(self.apart & fits & fits.T, gain, -np.inf)

    def swap(self, a: int, b: int) -> bool:
        """Swap two slots if that still helps and still fits."""
        here, there = self.node[a], self.node[b]
        one, two = self.placed[a], self.placed[b]
        moved = self.share[one] - self.share[two]
        gain = (
            (self.lean[one, there] - self.lean[one, here]) * self.part[one]
            + (self.lean[two, here] - self.lean[two, there]) * self.part[two]
            - 2 * self.pull[one, two] * self.part[one] * self.part[two]
        )
        fits = self.load[here] - moved <= self.limit[here] and self.load[there] + moved <= self.limit[there]
        if not (gain > self.least and fits):
            return False
        self.load[here] -= moved
        self.load[there] += moved
        change = self.pull[:, two] * self.part[two] - self.pull[:, one] * self.part[one]
        self.lean[:, here] += change
        self.lean[:, there] -= change
        self.placed[a], self.placed[b] = two, one
        self.swaps += 1
        return True


def pack_inside(placed: np.ndarray, share: np.ndarray, shape: Shape, limit: float) -> np.ndarray | None:
    """Pack each node's copies on its ranks again; None when a rank stays above the limit."""
    inside = placed.reshape(shape.nodes, -1)
    weight = share[inside]
    rank, place = pack(weight, shape.ranks_per_node)
    order = np.argsort(rank * inside.shape[1] + place, axis=1, kind="stable")
    inside, weight = np.take_along_axis(inside, order, axis=1), np.take_along_axis(weight, order, axis=1)
    goal = np.full(shape.nodes, limit)
    packed, highest = refine(inside, weight, shape.ranks_per_node, goal)
    return np.asarray(packed.ravel()) if highest.max() <= limit * (1 + 1e-12) else None


def _by_packings(
    placed: np.ndarray, loads: np.ndarray, shape: Shape, pull: np.ndarray, near: np.ndarray, limit: float
) -> np.ndarray | None:
    groups, nodes = shape.groups, shape.nodes
    if packings_count(groups, nodes) > MOST_PACKINGS:
        return None
    size = shape.experts // groups
    packings = all_packings(groups, nodes)
    group_load = loads.reshape(groups, size).sum(axis=1)
    between = pull.reshape(groups, size, groups, size).sum(axis=(1, 3))
    saved = between[packings[:, :, :, None], packings[:, :, None, :]].sum(axis=(1, 2, 3)) / 2
    fits = group_load[packings].sum(axis=2).max(axis=1) <= limit * shape.ranks_per_node * (1 + 1e-12)
    now = value(_held(placed, shape), pull, np.zeros_like(near))
    order = [p for p in np.argsort(-saved, kind="stable") if fits[p] and saved[p] > now - 1e-9]
    for packing in order[:TRIES]:
        found = fill_packing(loads[None], packings[packing][None], shape, np.array([limit]) / (1 + 1e-3))
        if Placement(shape, found).rank_loads(loads[None]).max() <= limit * (1 + 1e-12):
            return np.asarray(found[0])
    return None


def _held(placed: np.ndarray, shape: Shape) -> np.ndarray:
    inside = counts(placed.reshape(shape.nodes, -1), shape.experts)
    return np.asarray((inside / inside.sum(axis=0)).T)
