"""Where each block begins in a rank's input and output buffer, for real counts.

``counts`` are elements: [members, members] from row to column for alltoall and sendrecv, [members] for allgather
(what each rank gives) and reduce_scatter (what each rank gets), one number for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.collective import Collective
from synth.errors import DemandError
from synth.plan.ir import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """One rank's buffers.

    Attributes:
        counts: [chunks] elements of the block each chunk belongs to.
        input_offset: [chunks] where that block begins in this rank's input; meaningless where it is not there.
        output_offset: [chunks] where it begins in this rank's output; meaningless where it is not there.
        inputs: elements of the input.
        outputs: elements of the output.
        own: (input offset, output offset, elements) of the block this rank gives to itself.
    """

    counts: np.ndarray
    input_offset: np.ndarray
    output_offset: np.ndarray
    inputs: int
    outputs: int
    own: tuple[int, int, int]


def check_counts(plan: Plan, counts: np.ndarray | int) -> np.ndarray:
    """The counts as an int64 array of the shape the plan's collective needs.

    Raises:
        DemandError: wrong shape, or a negative count.
    """
    given = np.asarray(counts)
    members = plan.members
    match plan.collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            shape: tuple[int, ...] = (members, members)
        case Collective.ALLGATHER | Collective.REDUCE_SCATTER:
            shape = (members,)
        case _:
            shape = ()
    if given.shape != shape:
        raise DemandError(
            f"counts: {plan.collective.value} among {members} ranks needs shape {shape}, not {given.shape}",
            subject="counts",
        )
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise DemandError("counts: must be integers of at least 0", subject="counts")
    return given.astype(np.int64)


def unserved(plan: Plan, counts: np.ndarray) -> tuple[int, int] | None:
    """The first pair that has data and no chunk in the plan (one for sendrecv, or made for a sparse demand)."""
    if plan.collective not in (Collective.ALLTOALL, Collective.SENDRECV):
        return None
    served = np.eye(plan.members, dtype=bool)
    if plan.collective is Collective.SENDRECV:
        served[:] = False
    served[plan.chunks.origin, plan.chunks.target] = True
    left = np.argwhere((counts > 0) & ~served)
    return (int(left[0, 0]), int(left[0, 1])) if len(left) else None


def layout(plan: Plan, counts: np.ndarray, rank: int) -> Layout:
    """Lay out ``rank``'s buffers: blocks follow each other by target in inputs and by origin in outputs.

    Args:
        plan: expanded.
        counts: as :func:`check_counts` gives them.
        rank: of the plan; helpers have empty buffers.
    """
    origin, target = plan.chunks.origin, plan.chunks.target
    zeros = np.zeros(len(origin), dtype=np.int64)
    member = rank < plan.members
    match plan.collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            sizes = counts[origin, target]
            if not member:
                return Layout(sizes, zeros, zeros, 0, 0, (0, 0, 0))
            begins, ends = starts(counts[rank]), starts(counts[:, rank])
            own = (int(begins[rank]), int(ends[rank]), int(counts[rank, rank]))
            return Layout(sizes, begins[target], ends[origin], int(begins[-1]), int(ends[-1]), own)
        case Collective.ALLGATHER:
            begins = starts(counts)
            give = int(counts[rank]) if member else 0
            total = int(begins[-1]) if member else 0
            own = (0, int(begins[rank]) if member else 0, give)
            return Layout(counts[origin], zeros, begins[origin], give, total, own)
        case Collective.REDUCE_SCATTER:
            begins = starts(counts)
            get = int(counts[rank]) if member else 0
            return Layout(counts[target], begins[target], zeros, int(begins[-1]) if member else 0, get, (0, 0, 0))
        case _:
            size = int(counts) if member else 0
            gives = size if plan.collective is not Collective.BROADCAST or rank == plan.root else 0
            gets = size if plan.collective is not Collective.REDUCE or rank == plan.root else 0
            own = (0, 0, size if plan.collective is Collective.BROADCAST and rank == plan.root else 0)
            return Layout(np.full(len(origin), int(counts)), zeros, zeros, gives, gets, own)


def starts(counts: np.ndarray) -> np.ndarray:
    """[n + 1] where each of n consecutive parts begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
