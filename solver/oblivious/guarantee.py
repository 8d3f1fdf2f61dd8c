"""What an alltoall plan guarantees: the longest it takes by the official cost model, whatever the matrix."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.bound import Problem, generate
from solver.oblivious.hose import Hose
from synth.collective import Collective, Demand
from synth.collective.cheapest import shortest_paths
from synth.errors import LimitError
from synth.plan import Plan
from synth.simulator.loads import Loads
from synth.topology import Routes, Topology

MOST_RANKS = 64
"""A guarantee takes memory of links x rounds x ranks squared."""
CLOSE = 0.05
"""Links whose worst case is within this part of the worst are made busy together."""
CLIMBS = 5
"""From each matrix so many harder ones are tried."""
TRIED = 3
"""So many matrices that take long are remembered."""


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
    heaviest: list[tuple[float, float, np.ndarray]] = []
    for low, high in pairwise(np.unique(np.concatenate([stages, stages + whole.segments])).tolist()):
        running = np.flatnonzero((stages <= low) & (stages + whole.segments >= high))
        if len(running):
            busy = table[running].sum(axis=0)
            seconds, _ = hose.worst_of(busy)
            heaviest.append((seconds * (high - low), seconds, busy))
            total += (high - low) * (seconds + (float(latency[running].max()) + launch_ns) * 1e-9)
    heaviest.sort(key=lambda item: -item[0])
    matrices = [_hard(busy, hose, seconds) for _, seconds, busy in heaviest[:TRIED]] or [np.zeros((ranks, ranks))]
    return Guarantee(seconds=total, matrices=np.stack(matrices))


def _hard(busy: np.ndarray, hose: Hose, seconds: float) -> np.ndarray:
    """[ranks, ranks] one matrix for all links that can be about as busy as the busiest, which takes so many seconds."""
    candidates = busy[hose.limit(busy) >= seconds * (1 - CLOSE)]
    hard = [weights for weights in candidates if hose.worst(weights)[0] >= seconds * (1 - CLOSE)]
    return hose.worst(np.sum(hard, axis=0))[1]


def least_for_hardest(routes: Routes, hose: Hose, matrices: np.ndarray, *, deadline: float = float("inf")) -> float:
    """Seconds that even a plan made for the hardest matrix found needs.

    The prices of links that prove a bound for one matrix prove one for all; the matrix that pays most under them is
    at least as hard. The search climbs so from each of some matrices.

    Args:
        routes: among the ranks.
        hose: what matrices may be.
        matrices: [matrices, ranks, ranks] bytes.
        deadline: ``time.monotonic()`` at which to stop.
    """
    least = 0.0
    for start in matrices:
        matrix, reached = start, 0.0
        for _ in range(CLIMBS):
            problem = Problem.of(routes, _demand(matrix))
            found = generate(problem, deadline=deadline)
            if found.bound <= reached * (1 + 1e-4):
                break
            reached = found.bound
            paid = shortest_paths(problem.weights(found.prices))[: hose.ranks, : hose.ranks]
            matrix = hose.worst(paid)[1]
        least = max(least, reached)
        if time.monotonic() > deadline:
            break
    return least


def _demand(matrix: np.ndarray) -> Demand:
    sent = int(matrix.sum(axis=1).max())
    return Demand(collective=Collective.ALLTOALL, ranks=len(matrix), bytes=sent, matrix=matrix)
