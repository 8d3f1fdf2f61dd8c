"""The question: cut these GPUs into groups of K, all of which run an alltoall at the same time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from synth.collective.cheapest import shortest_paths
from synth.errors import Infeasible, InputError
from synth.topology import Routes, Topology

Groups = tuple[tuple[int, ...], ...]
"""A partition: positions in ``Problem.gpus``, ascending inside each group, groups by their first member."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """GPUs to be grouped.

    Attributes:
        topology: the machine.
        gpus: GPUs that take part, in order.
        size: GPUs per group, K.
        bytes: input of each rank's alltoall, all K blocks.
        background: [gpus, gpus] bytes that move at the same time whatever the groups (tensor- or data-parallel
            traffic); None: nothing.

    Raises:
        InputError: K does not fit.
    """

    topology: Topology
    gpus: tuple[str, ...]
    size: int
    bytes: int
    background: np.ndarray | None = field(default=None)

    def __post_init__(self) -> None:
        if len(self.gpus) < 2:
            raise InputError(
                f"topology {self.topology.name}: {len(self.gpus)} GPUs take part; groups need at least 2",
                subject=self.topology.name,
            )
        if not 2 <= self.size <= len(self.gpus):
            raise InputError(
                f"--ep-size: is {self.size}; must be from 2 to {len(self.gpus)}, the GPUs there are",
                subject="--ep-size",
            )
        if self.bytes < 1:
            raise InputError(f"--bytes: is {self.bytes}; must be at least 1", subject="--bytes")
        if self.background is not None and self.background.shape != (len(self.gpus), len(self.gpus)):
            raise InputError(
                f"--background: must be {len(self.gpus)} x {len(self.gpus)} bytes, one row per GPU",
                subject="--background",
            )

    @property
    def count(self) -> int:
        """How many groups; ``len(gpus) % size`` GPUs stay out."""
        return len(self.gpus) // self.size

    @property
    def left(self) -> int:
        """GPUs that stay out."""
        return len(self.gpus) % self.size

    @property
    def block(self) -> float:
        """Bytes from each rank to each other of its group."""
        return self.bytes / self.size

    @cached_property
    def routes(self) -> Routes:
        """Routes among all the GPUs; costly for thousands."""
        return Routes.among(self.topology, self.gpus)

    @cached_property
    def background_bytes(self) -> np.ndarray:
        """[links] bytes that the background puts on each link, over the direct routes."""
        load = np.zeros(len(self.topology.links))
        if self.background is not None:
            pairs = np.flatnonzero((self.background > 0).ravel() & ~np.eye(len(self.gpus), dtype=bool).ravel())
            rows, links = self.routes.incidence(pairs)
            np.add.at(load, links, self.background.ravel()[pairs][rows])
        return load


def canonical(groups: list[tuple[int, ...]] | Groups) -> Groups:
    """The same partition in its fixed order."""
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def contiguous(count: int, size: int) -> Groups:
    """Baseline: the first K GPUs, the next K, .."""
    return tuple(tuple(range(start, start + size)) for start in range(0, count - size + 1, size))


def strided(count: int, size: int) -> Groups:
    """Baseline: every so-manieth GPU, as frameworks lay groups across nodes."""
    groups = count // size
    return tuple(tuple(range(first, groups * size, groups)) for first in range(groups))


def unreachable(problem: Problem) -> Infeasible:
    """The error for a machine on which no group of this size can talk."""
    exists = problem.routes.exists
    reach = np.isfinite(shortest_paths(np.where(exists, 1.0, np.inf)))
    name = f"topology {problem.topology.name}"
    if reach.all():
        return Infeasible(
            f"{name}: found no partition into groups of {problem.size} whose members reach each other without help "
            "from outside the group; another --ep-size may fit the machine",
            subject=problem.topology.name,
        )
    a, b = (int(i) for i in np.argwhere(~reach)[0])
    islands = sorted({int(row.sum()) for row in reach}, reverse=True)
    return Infeasible(
        f"{name}: no partition into groups of {problem.size} keeps every group connected; {problem.gpus[a]} has no "
        f"path to {problem.gpus[b]}, and the parts that hold together have {', '.join(map(str, islands))} GPUs",
        subject=f"{problem.gpus[a]}:{problem.gpus[b]}",
    )
