"""The plan: who sends which chunk to whom in which round, as one frozen value with numpy columns.

A **chunk** is ``share / denominator`` of a block (see :mod:`synth.collective`). A **transfer** says: segment k of
``chunk`` goes from ``src`` to ``dst`` in round ``round + k``, for k = 0 .. segments - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from synth.collective import Collective
from synth.documents import Json
from synth.topology.group import Group

MAX_BYTES = 2**62
"""``bytes.max`` of a plan that was chosen for every size."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Columns of equal length, one entry per chunk.

    Attributes:
        origin: [chunks] rank the data starts at, -1 where all contribute.
        target: [chunks] rank it ends at, -1 where all receive.
        share: [chunks] part of its block, in units of 1 / denominator.
    """

    origin: np.ndarray
    target: np.ndarray
    share: np.ndarray

    def __len__(self) -> int:
        return len(self.share)


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Columns of equal length, one entry per transfer, sorted by round, src, dst, chunk.

    Attributes:
        chunk: [transfers] position in the chunk columns.
        src: [transfers] sending rank.
        dst: [transfers] receiving rank.
        round: [transfers] round of segment 0.
        reduce: [transfers] 1 where dst adds what it receives to what it holds.
    """

    chunk: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    round: np.ndarray
    reduce: np.ndarray

    def __len__(self) -> int:
        return len(self.chunk)

    def sorted(self) -> Transfers:
        """The same transfers in the document's order."""
        order = np.lexsort((self.chunk, self.dst, self.src, self.round))
        return Transfers(*(getattr(self, name)[order] for name in self.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A lower bound on the time of any schedule, with its proof.

    Attributes:
        kind: ``lengths`` or ``cut``.
        bound_ns: what is proven, for ``predicted.bytes[0]``.
        lengths: for ``lengths``, [links] one non-negative number per link in the topology document's order.
        devices: for ``cut``, the ids of one side.
        latency_bound_ns: the largest, over blocks, of the smallest route latency; None when it was not computed.
    """

    kind: str
    bound_ns: float
    lengths: np.ndarray | None = None
    devices: tuple[str, ...] = ()
    latency_bound_ns: float | None = None

    @property
    def best_bound_ns(self) -> float:
        """The larger of the bandwidth bound and the latency bound."""
        return max(self.bound_ns, self.latency_bound_ns or 0.0)


@dataclass(frozen=True, slots=True)
class Symmetry:
    """A group of rank permutations that acts freely; chunks and transfers list one representative per orbit.

    Attributes:
        generators: each the image of every rank.
        order: how many elements the group has.
    """

    generators: tuple[tuple[int, ...], ...]
    order: int

    @classmethod
    def of(cls, group: Group) -> Symmetry:
        """The group of some symmetries, as plans state it."""
        return cls(tuple(map(tuple, group.generators.tolist())), group.order)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the cost model (rounds, launch 0) says at some sizes; the first is the size the plan was made for."""

    bytes: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """One collective's schedule. See ``docs/formats.md`` for the document.

    Attributes:
        collective: what it implements.
        root: rank, for broadcast and reduce.
        ranks: device id of each rank; the last ``helpers`` of them have no data and only relay.
        helpers: how many.
        topology: fingerprint.
        min_bytes: smallest size it was chosen for.
        max_bytes: largest size it was chosen for.
        segments: every chunk is cut in so many parts that follow each other.
        denominator: of the chunks' shares.
        chunks: what travels.
        transfers: how.
        certificate: proof of a bound; None when there is none.
        predicted: cost model at some sizes.
        demand: [ranks, ranks] bytes per pair the plan was made for, for an uneven alltoall.
        symmetry: None when chunks and transfers are complete.
        solver: strategy, termination, gap, seconds, seed, versions.
    """

    collective: Collective
    ranks: tuple[str, ...]
    topology: str
    segments: int
    denominator: int
    chunks: Chunks
    transfers: Transfers
    root: int | None = None
    helpers: int = 0
    min_bytes: int = 0
    max_bytes: int = MAX_BYTES
    certificate: Certificate | None = None
    predicted: Predicted | None = None
    demand: np.ndarray | None = None
    symmetry: Symmetry | None = None
    solver: Mapping[str, Json] = field(default_factory=dict)

    @property
    def members(self) -> int:
        """How many ranks have data (all but the helpers)."""
        return len(self.ranks) - self.helpers

    @property
    def rounds(self) -> int:
        """Rounds from the first to the last, empty ones included."""
        return int(self.transfers.round.max()) + self.segments if len(self.transfers) else 0

    @cached_property
    def text(self) -> str:
        """The plan as canonical JSON."""
        from synth.plan.codec import dumps

        return dumps(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :attr:`text`: the plan's identity and its ETag."""
        from synth.documents import digest_text

        return digest_text(self.text)

    def with_(self, **changes: object) -> Plan:
        """A copy with some attributes changed."""
        return replace(self, **changes)  # type: ignore[arg-type]
