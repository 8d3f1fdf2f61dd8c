"""Lower bounds on the time of every partition, for machines too large to search completely."""

from __future__ import annotations

import numpy as np

from solver.groups.cells import Cells
from solver.groups.problem import Problem
from synth.collective.cheapest import shortest_paths
from synth.topology import LinkClass, Routes


def cut_bound(problem: Problem) -> float:
    """Seconds no partition can beat, from what must leave single GPUs, NVLink islands and nodes.

    Of a set of s GPUs, the s mod K that do not fill a group (fewer or more if some GPUs stay out) exchange with members
    outside, and those bytes share the links that leave the set.
    """
    topology, size, block = problem.topology, problem.size, problem.block
    src = np.array([topology.index[link.src] for link in topology.links], dtype=np.int64)
    dst = np.array([topology.index[link.dst] for link in topology.links], dtype=np.int64)
    chosen = np.zeros(len(topology.devices), dtype=bool)
    chosen[[topology.index[gpu] for gpu in problem.gpus]] = True
    bounds = [0.0]
    for label in _labels(problem, src, dst):
        sets = int(label.max()) + 1
        leaves = label[src] != label[dst]
        out, into = (np.zeros(sets + 1) for _ in range(2))  # label -1 collects in the last place
        np.add.at(out, label[src[leaves]], topology.bytes_per_s[leaves])
        np.add.at(into, label[dst[leaves]], topology.bytes_per_s[leaves])
        gpus = np.bincount(label[chosen & (label >= 0)], minlength=sets)
        for number in np.flatnonzero(gpus):
            pairs = min(
                ((gpus[number] - gone) % size) * (size - (gpus[number] - gone) % size)
                for gone in range(min(problem.left, int(gpus[number])) + 1)
            )
            capacity = min(out[number], into[number])
            if pairs and capacity > 0:
                bounds.append(pairs * block / capacity)
    return max(bounds)


def cell_bound(problem: Problem, cells: Cells) -> float:
    """Seconds no partition can beat, from GPUs whose group either stays in their node or straddles it.

    A group that stays needs (K - 1) blocks out of each GPU over the links that routes inside the node use; one that
    straddles, with m members in the node, sends m (K - m) blocks out of the node. Each GPU does one or the other.
    """
    size, block = problem.size, problem.block
    known: dict[int, list[float]] = {}
    times: list[float] = []
    for cell, members in enumerate(cells.members):
        kind = cells.kind_of[cell]
        if kind not in known:
            part, _ = cells.part([cell])
            routes = Routes.among(part, [problem.gpus[gpu] for gpu in members])
            leaving = cells.leaving(cell)
            pairs = min(m * (size - m) for m in range(1, min(size - 1, len(members)) + 1))
            out = pairs * block / leaving if leaving > 0 else np.inf
            known[kind] = [
                min(out, (size - 1) * block / rate) if len(members) >= size and rate > 0 else out
                for rate in _first_links(routes)
            ]
        times += known[kind]
    times.sort(reverse=True)
    worst = times[problem.left] if problem.left < len(times) else 0.0
    return worst if np.isfinite(worst) else 0.0


def _first_links(routes: Routes) -> list[float]:
    """Rate of all links with which the routes of each rank begin."""
    rates = []
    for rank in range(routes.ranks):
        first = {int(routes.route(rank, other)[0]) for other in np.flatnonzero(routes.exists[rank]).tolist()}
        rates.append(float(routes.topology.bytes_per_s[sorted(first)].sum()))
    return rates


def _labels(problem: Problem, src: np.ndarray, dst: np.ndarray) -> list[np.ndarray]:
    """[devices] set of each device, -1 for none: one table for single GPUs, one for islands, one for nodes."""
    topology = problem.topology
    single = np.full(len(topology.devices), -1)
    positions = [topology.index[gpu] for gpu in problem.gpus]
    single[positions] = np.arange(len(positions))
    names = {name: number for number, name in enumerate(topology.nodes)}
    node = np.array([names.get(device.node, -1) if device.node else -1 for device in topology.devices])
    return [single, islands(problem, src, dst), node]


def islands(problem: Problem, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """[devices] number of the NVLink island each device belongs to: joined by NVLink or chip-to-chip links."""
    topology = problem.topology
    near = np.array([link.link_class in (LinkClass.NVLINK, LinkClass.C2C) for link in topology.links], dtype=bool)
    label = np.arange(len(topology.devices))
    while True:
        lower = label.copy()
        np.minimum.at(lower, src[near], label[dst[near]])
        np.minimum.at(lower, dst[near], label[src[near]])
        lower = lower[lower]
        if (lower == label).all():
            return np.asarray(np.unique(label, return_inverse=True)[1])
        label = lower


def price_bound(problem: Problem, lengths: np.ndarray) -> float:
    """Seconds no partition can beat, from one partition's link prices.

    Every GPU that takes part has K - 1 partners, at best the ones that are nearest under these prices.
    """
    distance = shortest_paths(problem.routes.hop_weights(lengths))
    np.fill_diagonal(distance, np.inf)
    nearest = np.sort(distance, axis=1)[:, : problem.size - 1].sum(axis=1)
    used = np.sort(nearest)[: problem.count * problem.size]
    fixed = float(lengths @ problem.background_bytes)
    total = float(used.sum()) * problem.block
    return fixed + total if np.isfinite(total) else 0.0
