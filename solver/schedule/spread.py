"""Spread: every node-to-node block goes evenly over all rails, however uneven the ranks are.

Rank i of node A to rank j of node B: part r goes to A's r-th rank (over NVLink), from there to B's r-th rank (over the
NIC they share a rail with), and on to j (over NVLink). A hot rank then loads every NIC of its node alike, which is what
a direct exchange of skewed traffic does not do. Source: the idea of FAST, arXiv 2505.09764, without its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

import numpy as np

from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import MAX_EVENTS
from synth.collective import Collective
from synth.plan import Chunks, Transfers
from synth.simulator import Cost
from synth.topology import Topology

SEGMENTS = (1, 2, 4, 8, 16, 32, 64)
"""The three hops overlap as a pipeline; so finely, where the timeline model decides."""
HOPELESS = 2.0
"""More segments do not help where the links would still take so many times as long as they need to."""


def drafts(task: Task) -> Iterator[Draft]:
    """The same routes, with the best number of segments by the rounds model, or with more and more for the other."""
    demand, routes = task.problem.demand, task.problem.routes
    group = task.problem.listed
    spread = draft(routes.topology, routes.devices[: demand.ranks], None if group is None else group.representatives)
    if task.cost is Cost.ROUNDS:
        yield spread.with_segments(spread.pipeline(task.problem, task.launch_ns).best()[0])
        return
    before = float("inf")
    for segments in SEGMENTS:
        if task.over and segments > 1:
            return
        finer = spread.with_segments(segments)
        if segments > 1 and finer.events(task.problem) > MAX_EVENTS:
            return
        yield finer
        seconds = finer.seconds(task)
        if segments > 1 and 2 * seconds - before > HOPELESS * task.fractional.bound:  # what more of them could gain
            return
        before = seconds


def draft(topology: Topology, devices: tuple[str, ...], represented: np.ndarray | None = None) -> Draft:
    """The routes, among ranks on any number of nodes; on one node they are direct.

    Args:
        topology: where the ranks are.
        devices: of the ranks.
        represented: origins whose chunks are listed, one per orbit of a symmetry; default: all. An image of a block's
            rails is again all rails of the image of the block, whatever the symmetry pairs them as.
    """
    nodes: dict[str | None, list[int]] = {}
    for rank, device in enumerate(devices):
        nodes.setdefault(topology.device(device).node, []).append(rank)
    members = [np.array(ranks) for ranks in nodes.values()]
    denominator = lcm(*(min(len(a), len(b)) for a in members for b in members))
    chunks: list[tuple[np.ndarray, ...]] = []  # origin, first rail rank, second rail rank, target, share
    for here, a in enumerate(members):
        for there, b in enumerate(members):
            rails = 1 if here == there else min(len(a), len(b))
            i, j, rail = (axis.ravel() for axis in np.indices((len(a), len(b), rails)))
            origin, target = a[i], b[j]
            first, second = (origin, target) if here == there else (a[rail], b[rail])
            keep = origin != target
            if represented is not None:
                keep &= np.isin(origin, represented)
            share = np.full(len(origin), denominator // rails)
            chunks.append(tuple(column[keep] for column in (origin, first, second, target, share)))
    origin, first, second, target, share = (np.concatenate(column) for column in zip(*chunks, strict=True))
    hops = [(0, origin, first), (1, first, second), (2, second, target)]
    number = np.arange(len(origin))
    columns = [
        (number[src != dst], src[src != dst], dst[src != dst], np.full(int((src != dst).sum()), round))
        for round, src, dst in hops
    ]
    chunk, src, dst, round = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Draft(
        chunks=Chunks(origin, target, share),
        transfers=Transfers(chunk, src, dst, round, np.zeros(len(chunk), dtype=np.int64)).sorted(),
        denominator=denominator,
    )


STRATEGY = Strategy(name="spread", collectives=frozenset({Collective.ALLTOALL}), needs_all_pairs=True, drafts=drafts)
