"""Small plans written by hand, for tests of what comes after the solver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.collective import Collective, Demand
from synth.plan import Certificate, Chunks, Plan, Predicted, Transfers
from synth.topology import Topology


def columns(*values: Sequence[int]) -> list[np.ndarray]:
    return [np.array(value, dtype=np.int64) for value in values]


def direct_alltoall(machine: Topology, *, certificate: bool = False) -> Plan:
    """Every pair exchanges in one round; needs a route for each pair."""
    count = len(machine.gpus)
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    src, dst = columns([a for a, _ in pairs], [b for _, b in pairs])
    each = np.arange(len(pairs))
    proof = Certificate("lengths", 0.0, lengths=np.zeros(len(machine.links))) if certificate else None
    return Plan(
        collective=Collective.ALLTOALL,
        ranks=machine.gpus,
        topology=machine.fingerprint,
        segments=1,
        denominator=1,
        chunks=Chunks(src, dst, np.ones_like(src)),
        transfers=Transfers(each, src, dst, np.zeros_like(src), np.zeros_like(src)).sorted(),
        certificate=proof,
        predicted=Predicted((1000,), (1.0,)),
    )


def chain(machine: Topology, collective: Collective, *, segments: int = 4) -> Plan:
    """Broadcast, reduce or allreduce along ranks 0, 1, 2, ... (root 0) in a pipeline."""
    count = len(machine.gpus)
    down = [(r, r + 1, r) for r in range(count - 1)]
    up = [(r, r - 1, count - 1 - r) for r in range(count - 1, 0, -1)]
    if collective is Collective.BROADCAST:
        steps = [(a, b, t, 0) for a, b, t in down]
        ends = (0, -1)
    elif collective is Collective.REDUCE:
        steps = [(a, b, t, 1) for a, b, t in up]
        ends = (-1, 0)
    else:
        steps = [(a, b, t, 1) for a, b, t in up] + [(a, b, t + count - 1, 0) for a, b, t in down]
        ends = (-1, -1)
    src, dst, when, reduce = columns(*zip(*steps, strict=True))
    return Plan(
        collective=collective,
        root=0 if collective.rooted else None,
        ranks=machine.gpus,
        topology=machine.fingerprint,
        segments=segments,
        denominator=1,
        chunks=Chunks(*columns([ends[0]], [ends[1]], [1])),
        transfers=Transfers(np.zeros_like(src), src, dst, when, reduce).sorted(),
        predicted=Predicted((1000,), (1.0,)),
    )


def demand(plan: Plan, bytes: int) -> Demand:
    return Demand(collective=plan.collective, ranks=plan.members, bytes=bytes, root=plan.root)
