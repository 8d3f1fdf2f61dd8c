"""How many bytes a plan's chunks have for a demand."""

from __future__ import annotations

import numpy as np

from synth.collective import Collective, Demand
from synth.errors import DemandError
from synth.plan.ir import Plan


def demand_of(plan: Plan, bytes: int | None = None, matrix: np.ndarray | None = None) -> Demand:
    """The demand a plan serves: at a size, with a byte matrix, or (neither given) what it was made for.

    Raises:
        DemandError: neither is given and the plan does not say what it was made for.
    """
    if matrix is None and bytes is None:
        matrix = plan.demand
        if matrix is None and plan.predicted is None:
            raise DemandError("plan: does not say the size it was made for; give --bytes", subject="bytes")
    if bytes is None:
        assert matrix is not None or plan.predicted is not None
        bytes = input_bytes(matrix) if matrix is not None else plan.predicted.bytes[0]  # type: ignore[union-attr]
    pairs: tuple[tuple[int, int], ...] = ()
    if plan.collective is Collective.SENDRECV:
        pairs = tuple(dict.fromkeys(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True)))
    return Demand(
        collective=plan.collective, ranks=plan.members, bytes=bytes, matrix=matrix, root=plan.root, pairs=pairs
    )


def input_bytes(matrix: np.ndarray) -> int:
    """Size of an uneven alltoall: the largest input buffer of any rank."""
    return int(matrix.sum(axis=1).max())


def chunk_bytes(plan: Plan, demand: Demand) -> np.ndarray:
    """[chunks] bytes of each whole chunk, all its segments, float64.

    Raises:
        DemandError: the demand is not one this plan serves.
    """
    if demand.collective is not plan.collective or demand.ranks != plan.members or demand.root != plan.root:
        raise DemandError(
            f"demand: is {demand.collective.value} among {demand.ranks} ranks; the plan is "
            f"{plan.collective.value} among {plan.members}",
            subject="demand",
        )
    block: np.ndarray | float
    if demand.matrix is not None:
        block = demand.matrix[plan.chunks.origin, plan.chunks.target]
    else:
        block = demand.bytes / (demand.ranks if plan.collective.in_parts else 1)
    sizes: np.ndarray = plan.chunks.share / plan.denominator * block
    return sizes
