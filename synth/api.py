"""The functions behind ``synth.load``, ``synth.solve`` and ``synth.attach``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from synth import documents, plan, topology, upper
from synth.collective import Demand, parse_collective
from synth.documents import shorten
from synth.errors import DocumentError
from synth.plan import Plan
from synth.plan.sizes import input_bytes
from synth.topology import Topology

if TYPE_CHECKING:
    from runtime.attach import Group
    from solver.portfolio import Solved


def load(path: str | Path) -> Topology | Plan:
    """Read a topology or a plan, whichever the file's ``format`` says.

    Raises:
        InputError: the file cannot be read or is neither.
    """
    document = documents.read(path)
    given = document.get("format") if isinstance(document, dict) else None
    if given == topology.codec.FORMAT:
        return topology.from_document(document, subject=str(path))
    if given == plan.codec.FORMAT:
        return plan.from_document(document, subject=str(path))
    raise DocumentError(
        f"{path}: format is {shorten(given)}; must be {topology.codec.FORMAT} or {plan.codec.FORMAT}", subject=str(path)
    )


def solve(
    machine: Topology,
    collective: str,
    *,
    bytes: int | None = None,
    demand: Sequence[Sequence[float]] | np.ndarray | None = None,
    ranks: Sequence[str] | None = None,
    root: int | None = None,
    pairs: Sequence[tuple[int, int]] = (),
    **options: Any,
) -> Solved:
    """Synthesize a plan; needs the extra ``solver``.

    Args:
        machine: where it is to run.
        collective: alltoall, allgather, reduce_scatter, allreduce, broadcast, reduce or sendrecv.
        bytes: size, as the collective defines it; default 1 GB, or what ``demand`` says.
        demand: [ranks, ranks] bytes per ordered pair, for an uneven alltoall.
        ranks: device ids in rank order; default every GPU.
        root: for broadcast and reduce.
        pairs: for sendrecv.
        options: ``time_limit``, ``cost``, ``launch_ns``, ``seed`` and others of :func:`solver.portfolio.solve`.

    Returns:
        the plan with its bound, gap and how the solve went.
    """
    members = tuple(ranks) if ranks is not None else machine.gpus
    matrix = None if demand is None else np.asarray(demand, dtype=np.float64)
    if bytes is None:
        bytes = 1_000_000_000 if matrix is None else input_bytes(matrix)
    asked = Demand(
        collective=parse_collective(collective),
        ranks=len(members),
        bytes=bytes,
        matrix=matrix,
        root=root,
        pairs=tuple(pairs),
    )
    solved: Solved = upper.load("solver.portfolio").solve(machine, asked, ranks=members, **options)
    return solved


def attach(**options: Any) -> Group:
    """Join the group of ranks this process belongs to and get its plan; see :func:`runtime.attach.attach`."""
    group: Group = upper.load("runtime.attach").attach(**options)
    return group
