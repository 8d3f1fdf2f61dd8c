"""What an alltoall plan guarantees: the longest it takes by the official cost model, whatever the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.bound import Problem, generate
from solver.oblivious.hose import Hose
from synth.collective import Collective, Demand
from synth.errors import LimitError
from synth.plan import Plan
from synth.simulator.loads import Loads
from synth.topology import Routes, Topology

MOST_RANKS = 64
"""A guarantee takes memory of links x rounds x ranks squared."""
CLOSE = 0.05
"""Links whose worst case is within this part of the worst are made busy together."""
TRIED = 4
"""So many hard matrices are bounded; the best bound counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guarantee:
    """A plan's worst case.

    Attributes:
        seconds: no matrix of the hose takes longer; of a plan of one round, some matrix takes just as long.
        matrices: [some, ranks, ranks] matrices that take long.
    """

    seconds: float
    matrices: np.ndarray


def guarantee(plan: Plan, topology: Topology, hose: Hose, *, launch_ns: float = 0.0) -> Guarantee:
    """Bound the time of a plan from above.

    In every span of equal rounds, each link has its own worst matrix; the longest of them counts.

    Args:
        plan: an alltoall, valid on the topology.
        topology: where it runs.
        hose: what matrices may be.
        launch_ns: cost of starting one round.

    Raises:
        LimitError: there are more than ``MOST_RANKS`` ranks.
    """
    if len(plan.ranks) > MOST_RANKS:
        raise LimitError(f"guarantee: {len(plan.ranks)} ranks; at most {MOST_RANKS} are served", subject="ranks")
    ranks = hose.ranks
    ones = Demand(collective=Collective.ALLTOALL, ranks=ranks, bytes=ranks, matrix=np.ones((ranks, ranks)))
    loads = Loads.of(plan, topology, ones, Routes.among(topology, plan.ranks))
    whole, begin = loads.plan, loads.plan.transfers.round
    pair = (whole.chunks.origin * ranks + whole.chunks.target)[whole.transfers.chunk]
    stages, stage = np.unique(begin, return_inverse=True)
    rows, links = loads.routes.incidence(loads.pair)
    used, link = np.unique(links, return_inverse=True)
    flat = np.zeros((len(stages), len(used), ranks * ranks))
    np.add.at(flat, (stage[rows], link, pair[rows]), loads.segment_bytes[rows] / topology.bytes_per_s[links])
    table = flat.reshape(len(stages), len(used), ranks, ranks)
    latency = np.zeros(len(stages))
    np.maximum.at(latency, stage, loads.routes.latency_ns.ravel()[loads.pair])
    total = 0.0
    hardest: list[tuple[float, np.ndarray]] = []
    for low, high in pairwise(np.unique(np.concatenate([stages, stages + whole.segments])).tolist()):
        running = np.flatnonzero((stages <= low) & (stages + whole.segments >= high))
        if len(running):
            busy = table[running].sum(axis=0)
            seconds, where = hose.worst_of(busy)
            for weights in (busy[where], _together(busy, hose, seconds)):
                hardest.append((seconds * (high - low), hose.worst(weights)[1]))
            total += (high - low) * (seconds + (float(latency[running].max()) + launch_ns) * 1e-9)
    hardest.sort(key=lambda item: -item[0])
    matrices = [matrix for _, matrix in hardest[:TRIED]] or [np.zeros((ranks, ranks))]
    return Guarantee(seconds=total, matrices=np.stack(matrices))


def _together(busy: np.ndarray, hose: Hose, seconds: float) -> np.ndarray:
    """[ranks, ranks] weights of all links that may be as busy as the busiest, to make them busy with one matrix."""
    return np.asarray(busy[hose.limit(busy) >= seconds * (1 - CLOSE)].sum(axis=0))


def least_for_hardest(routes: Routes, matrices: np.ndarray, *, deadline: float = float("inf")) -> float:
    """Seconds that even a plan made for the hardest of some matrices needs.

    Args:
        routes: among the ranks.
        matrices: [matrices, ranks, ranks] bytes.
        deadline: ``time.monotonic()`` at which to stop.
    """
    least = 0.0
    for matrix in matrices:
        sent = int(matrix.sum(axis=1).max())
        demand = Demand(collective=Collective.ALLTOALL, ranks=len(matrix), bytes=sent, matrix=matrix)
        least = max(least, generate(Problem.of(routes, demand), deadline=deadline).bound)
    return least
