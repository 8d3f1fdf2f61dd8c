"""Plans without a solver: the one grouped exchange that everyone would write, for every collective.

They serve where no synthesized plan exists and the transport has no native collective, and they are the baseline a
synthesized plan has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.collective import EVERY, Collective
from synth.plan import Chunks, Plan, Transfers


def direct_plan(
    collective: Collective, ranks: int, *, root: int = 0, pairs: Sequence[tuple[int, int]] | None = None
) -> Plan:
    """Every block goes straight to where it is wanted, all in round 0; allreduce gathers its sums in round 1.

    Args:
        collective: what is asked.
        ranks: at least 2.
        root: for broadcast and reduce.
        pairs: for sendrecv; None serves every pair.
    """
    everyone = np.arange(ranks)
    src, dst = (axis.ravel() for axis in np.indices((ranks, ranks)))
    src, dst = src[src != dst], dst[src != dst]
    every = np.full(ranks, EVERY)
    others = everyone[everyone != root]
    at_root = np.full(len(others), root)
    match collective:
        case Collective.ALLTOALL:
            return _plan(collective, ranks, (src, dst), [(np.arange(len(src)), src, dst, 0, 0)])
        case Collective.SENDRECV:
            if pairs is not None:
                src, dst = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
            return _plan(collective, ranks, (src, dst), [(np.arange(len(src)), src, dst, 0, 0)])
        case Collective.ALLGATHER:
            return _plan(collective, ranks, (everyone, every), [(src, src, dst, 0, 0)])
        case Collective.REDUCE_SCATTER:
            return _plan(collective, ranks, (every, everyone), [(dst, src, dst, 0, 1)])
        case Collective.ALLREDUCE:
            return _plan(collective, ranks, (every, every), [(dst, src, dst, 0, 1), (src, src, dst, 1, 0)])
        case Collective.BROADCAST:
            one = (np.array([root]), np.array([EVERY]))
            return _plan(collective, ranks, one, [(0 * others, at_root, others, 0, 0)], root)
        case Collective.REDUCE:
            one = (np.array([EVERY]), np.array([root]))
            return _plan(collective, ranks, one, [(0 * others, others, at_root, 0, 1)], root)


def _plan(
    collective: Collective,
    ranks: int,
    blocks: tuple[np.ndarray, np.ndarray],
    waves: list[tuple[np.ndarray, np.ndarray, np.ndarray, int, int]],
    root: int | None = None,
) -> Plan:
    columns = [
        np.concatenate([np.broadcast_to(wave[column], len(wave[0])) for wave in waves]).astype(np.int64)
        for column in range(5)
    ]
    chunk, src, dst, round, reduce = columns
    whole = collective is not Collective.ALLREDUCE
    return Plan(
        collective=collective,
        ranks=tuple(f"rank{rank}" for rank in range(ranks)),
        topology="",
        segments=1,
        denominator=1 if whole else ranks,
        chunks=Chunks(*blocks, np.ones(len(blocks[0]), dtype=np.int64)),
        transfers=Transfers(chunk, src, dst, round, reduce).sorted(),
        root=root,
        solver={"strategy": "direct"},
    )
