"""The direct exchange: every block goes straight to where it is needed, in one round (an allreduce: two)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.schedule.draft import Draft, Strategy, Task
from synth.collective import EVERY, Collective
from synth.plan import Chunks, Transfers


def drafts(task: Task) -> Iterator[Draft]:
    """The one draft there is."""
    demand = task.problem.demand
    members, group = demand.ranks, task.problem.listed
    represented = np.arange(members) if group is None else group.representatives
    if demand.collective is Collective.ALLREDUCE:
        yield _two_rounds(members, represented)
        return
    blocks = demand.blocks
    kept = np.isin(np.where(blocks.origin == EVERY, blocks.target, blocks.origin), represented)
    origin, target = blocks.origin[kept], blocks.target[kept]
    count = len(origin)
    chunks = Chunks(origin, target, np.ones(count, dtype=np.int64))
    if demand.collective in (Collective.ALLTOALL, Collective.SENDRECV):
        chunk, src, dst = np.arange(count), origin, target
    else:
        chunk, other = (axis.ravel() for axis in np.indices((count, members)))
        away = target if demand.collective.reduces else origin
        end = away[chunk]
        chunk, other, end = (column[other != end] for column in (chunk, other, end))
        src, dst = (other, end) if demand.collective.reduces else (end, other)
    reduce = np.full(len(chunk), int(demand.collective.reduces))
    transfers = Transfers(chunk, src, dst, np.zeros(len(chunk), dtype=np.int64), reduce)
    yield Draft(chunks=chunks, transfers=transfers.sorted(), denominator=1)


def _two_rounds(members: int, roots: np.ndarray) -> Draft:
    """Everyone sends part r to rank r, which adds and sends the sum to everyone."""
    every = np.full(len(roots), EVERY)
    chunk, other = (axis.ravel() for axis in np.indices((len(roots), members)))
    root = roots[chunk]
    chunk, root, other = (column[root != other] for column in (chunk, root, other))
    count = len(root)
    transfers = Transfers(
        np.tile(chunk, 2),
        np.concatenate([other, root]),
        np.concatenate([root, other]),
        np.repeat([0, 1], count),
        np.repeat([1, 0], count),
    )
    return Draft(
        chunks=Chunks(every, every, np.ones(len(roots), dtype=np.int64)),
        transfers=transfers.sorted(),
        denominator=members,
    )


STRATEGY = Strategy(
    name="direct", collectives=frozenset(Collective), needs_all_pairs=True, drafts=drafts, baseline=True
)
