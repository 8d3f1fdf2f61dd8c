"""What is asked of a group: the collective, its size, and the blocks that must move.

A **block** is the unit of what a collective promises: what one rank has for another (alltoall, sendrecv), what one
rank gives to all (allgather, broadcast), what all reduce to one rank (reduce_scatter, reduce), or the whole buffer
(allreduce). ``origin`` and ``target`` are ranks, or ``EVERY``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from synth.documents import Fields, Json, shorten
from synth.errors import DemandError

EVERY = -1
"""Origin or target of a block that comes from, or goes to, every rank."""


class Collective(StrEnum):
    """The operations synth plans; ``bytes`` is one rank's input buffer unless said otherwise."""

    ALLTOALL = "alltoall"
    """Each rank has a block for each rank; bytes is the whole input, all N blocks, its own included."""
    ALLGATHER = "allgather"
    """Each rank ends with every rank's block; bytes is one rank's whole *output*."""
    REDUCE_SCATTER = "reduce_scatter"
    """Rank r ends with the sum of everyone's block r; bytes is the whole input, all N blocks."""
    ALLREDUCE = "allreduce"
    """Each rank ends with the sum of all buffers."""
    BROADCAST = "broadcast"
    """Each rank ends with the root's buffer."""
    REDUCE = "reduce"
    """The root ends with the sum of all buffers."""
    SENDRECV = "sendrecv"
    """Each listed pair moves one buffer of ``bytes``."""

    @property
    def reduces(self) -> bool:
        """Whether contributions are added up on the way."""
        return self in (Collective.REDUCE_SCATTER, Collective.ALLREDUCE, Collective.REDUCE)

    @property
    def rooted(self) -> bool:
        """Whether it needs a root."""
        return self in (Collective.BROADCAST, Collective.REDUCE)

    @property
    def in_parts(self) -> bool:
        """Whether ``bytes`` counts one block for each rank, so that a block is bytes / ranks."""
        return self in (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER)

    def busbw_factor(self, ranks: int) -> float:
        """Busbw / algbw, as nccl-tests defines it."""
        if self is Collective.ALLREDUCE:
            return 2 * (ranks - 1) / ranks
        if self.in_parts:
            return (ranks - 1) / ranks
        return 1.0


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks as columns of equal length.

    Attributes:
        origin: [blocks] rank, or ``EVERY``.
        target: [blocks] rank, or ``EVERY``.
        size: [blocks] bytes, float64.
    """

    origin: np.ndarray
    target: np.ndarray
    size: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """One collective among ``ranks`` ranks.

    Attributes:
        collective: what is asked.
        ranks: how many ranks have data.
        bytes: as the collective defines it; ignored where ``matrix`` is given.
        matrix: [ranks, ranks] bytes from row to column, for an uneven alltoall; the diagonal does not travel.
        root: for broadcast and reduce.
        pairs: for sendrecv, (from, to).

    Raises:
        DemandError: the parts do not fit together.
    """

    collective: Collective
    ranks: int
    bytes: int
    matrix: np.ndarray | None = None
    root: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        name = self.collective.value
        if self.ranks < 2:
            raise DemandError(f"{name}: needs at least 2 ranks, not {self.ranks}", subject="ranks")
        if not 0 <= self.bytes < 2**63:
            raise DemandError(f"{name}: bytes is {self.bytes}; must be from 0 to 2^63 - 1", subject="bytes")
        if self.collective.rooted:
            if self.root is None or not 0 <= self.root < self.ranks:
                raise DemandError(f"{name}: needs a root from 0 to {self.ranks - 1}, not {self.root}", subject="root")
        elif self.root is not None:
            raise DemandError(f"{name}: has no root; leave it out", subject="root")
        if self.matrix is not None:
            if self.collective is not Collective.ALLTOALL:
                raise DemandError(f"{name}: a byte matrix goes with alltoall only", subject="demand")
            if self.matrix.shape != (self.ranks, self.ranks):
                raise DemandError(
                    f"{name}: the byte matrix is {' x '.join(map(str, self.matrix.shape))}; {self.ranks} ranks need "
                    f"{self.ranks} x {self.ranks}",
                    subject="demand",
                )
            if not np.isfinite(self.matrix).all() or (self.matrix < 0).any() or (self.matrix >= 2**63).any():
                raise DemandError(f"{name}: the byte matrix holds a negative or unusable number", subject="demand")
        self._check_pairs(name)

    def _check_pairs(self, name: str) -> None:
        if (self.collective is Collective.SENDRECV) != bool(self.pairs):
            raise DemandError(
                f"{name}: a list of pairs goes with sendrecv and only with it; sendrecv needs at least one",
                subject="pairs",
            )
        for a, b in self.pairs:
            if not (0 <= a < self.ranks and 0 <= b < self.ranks) or a == b:
                raise DemandError(
                    f"{name}: pair {a}:{b} must name two different ranks from 0 to {self.ranks - 1}", subject="pairs"
                )
        if len(set(self.pairs)) != len(self.pairs):
            raise DemandError(f"{name}: a pair is listed twice", subject="pairs")

    def row(self, rank: int) -> np.ndarray:
        """[ranks] bytes an alltoall moves from one rank to each, 0 to itself."""
        sizes = np.full(self.ranks, self.bytes / self.ranks) if self.matrix is None else self.matrix[rank].astype(float)
        sizes[rank] = 0.0
        return sizes

    def blocks_from(self, origins: np.ndarray) -> tuple[Blocks, np.ndarray]:
        """Those blocks of an alltoall that start at some ranks, ascending, and their positions in :attr:`blocks`."""
        origin, target = (axis.ravel() for axis in np.meshgrid(origins, np.arange(self.ranks), indexing="ij"))
        travels = origin != target
        size = np.concatenate([self.row(rank) for rank in origins.tolist()])
        position = origin * (self.ranks - 1) + target - (target > origin)
        return Blocks(origin[travels], target[travels], size[travels]), position[travels]

    @cached_property
    def blocks(self) -> Blocks:
        """What must move, in a fixed order; blocks of zero bytes are kept, so that a plan covers every pair."""
        everyone = np.arange(self.ranks)
        every = np.full(self.ranks, EVERY)
        part = np.full(self.ranks, self.bytes / self.ranks)
        whole = np.array([float(self.bytes)])
        match self.collective:
            case Collective.ALLTOALL:
                origin, target = (axis.ravel() for axis in np.indices((self.ranks, self.ranks)))
                travels = origin != target
                size = (
                    np.full(self.ranks**2, self.bytes / self.ranks)
                    if self.matrix is None
                    else self.matrix.astype(np.float64).ravel()
                )
                return Blocks(origin[travels], target[travels], size[travels])
            case Collective.ALLGATHER:
                return Blocks(everyone, every, part)
            case Collective.REDUCE_SCATTER:
                return Blocks(every, everyone, part)
            case Collective.ALLREDUCE:
                return Blocks(np.array([EVERY]), np.array([EVERY]), whole)
            case Collective.BROADCAST:
                return Blocks(np.array([self.root]), np.array([EVERY]), whole)
            case Collective.REDUCE:
                return Blocks(np.array([EVERY]), np.array([self.root]), whole)
            case Collective.SENDRECV:
                pairs = np.array(self.pairs)
                return Blocks(pairs[:, 0], pairs[:, 1], np.full(len(pairs), float(self.bytes)))

    def sized(self, bytes: int) -> Demand:
        """The same demand at another size; a byte matrix is replaced by the uniform one."""
        return Demand(collective=self.collective, ranks=self.ranks, bytes=bytes, root=self.root, pairs=self.pairs)


def parse_collective(text: str) -> Collective:
    """Read a collective's name.

    Raises:
        DemandError: nobody knows it; the message lists those that are known.
    """
    try:
        return Collective(text)
    except ValueError:
        known = ", ".join(member.value for member in Collective)
        raise DemandError(f"collective {shorten(text)}: is not known; must be one of {known}", subject=text) from None


def matrix_from_document(document: Json, *, subject: str = "demand") -> np.ndarray:
    """Read ``{"bytes": [[N x N]]}`` into an [N, N] float64 matrix.

    Raises:
        DocumentError: it is not that.
        DemandError: rows differ in length or an entry is not a number of bytes.
    """
    rows = Fields(document, f"{subject}#").items("bytes", most=4096)
    for number, row in enumerate(rows):
        where = f"{subject}#/bytes/{number}"
        if not isinstance(row, list) or len(row) != len(rows):
            raise DemandError(f"{where}: must be a row of {len(rows)} numbers, one per rank", subject=where)
        for column, item in enumerate(row):
            if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < 2**63:
                raise DemandError(
                    f"{where}/{column}: is {shorten(item)}; must be a number of bytes, at least 0", subject=where
                )
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows))


def matrix_to_document(matrix: np.ndarray | Sequence[Sequence[float]]) -> dict[str, Json]:
    """The byte matrix as the ``--demand`` document."""
    return {"bytes": np.asarray(matrix).tolist()}
