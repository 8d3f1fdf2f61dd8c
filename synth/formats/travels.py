"""Where every chunk of a plan lies at each rank when it is sent, and where it lands: what all program formats share.

Unlike :mod:`synth.plan.lowering`, which serves any byte counts, these formats cut buffers into equal **parts**: a
block has as many as make every share a whole number. Segments are left out, because the systems that run such programs
repeat all their steps for each slice of the buffers, which is the same pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from synth.collective import EVERY, Collective
from synth.errors import PlanError
from synth.plan import Plan, expand
from synth.plan.program import Buffer

_BLOCKS = (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
class Spot:
    """Some consecutive parts of one buffer."""

    buffer: Buffer
    first: int

    def follows(self, other: Spot, parts: int) -> bool:
        """Whether this begins where ``parts`` parts at ``other`` end."""
        return self.buffer == other.buffer and self.first == other.first + parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """One transfer with its memory.

    Attributes:
        round: the plan's.
        src: rank.
        dst: rank.
        chunk: of the plan.
        parts: how many.
        source: where it lies at ``src``.
        target: where it, or the sum, must be at ``dst`` after the round.
        base: what is added to it at ``dst``; None where it only moves.
        stage: scratch of ``dst`` where it must land first, because ``target`` is still being sent in this round.
        alone: whether ``dst`` receives this chunk only once in this round.
    """

    round: int
    src: int
    dst: int
    chunk: int
    parts: int
    source: Spot
    target: Spot
    base: Spot | None
    stage: Spot | None
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Some parts of a rank's input that belong to its own output."""

    rank: int
    parts: int
    source: Spot
    target: Spot


@dataclass(frozen=True, kw_only=True)
class Travels:
    """A whole plan, laid out.

    Attributes:
        plan: expanded.
        per_block: parts of a block.
        travels: by round, src, dst, chunk.
        copies: by rank.
        scratch: [ranks] parts of scratch each rank needs.
        aliased: whether the layout holds where input and output are the same memory.
    """

    plan: Plan
    per_block: int
    travels: tuple[Travel, ...]
    copies: tuple[Copy, ...]
    scratch: tuple[int, ...]
    aliased: bool

    @property
    def per_buffer(self) -> int:
        """Parts of the larger of a rank's input and output."""
        return self.per_block * (len(self.plan.ranks) if self.plan.collective in _BLOCKS else 1)

    @property
    def inputs(self) -> int:
        """Parts of a rank's input."""
        return self.per_block if self.plan.collective is Collective.ALLGATHER else self.per_buffer

    @property
    def outputs(self) -> int:
        """Parts of a rank's output."""
        return self.per_block if self.plan.collective is Collective.REDUCE_SCATTER else self.per_buffer

    def memory(self, rank: int, spot: Spot) -> Spot:
        """The one name of a spot where input and output may be the same memory."""
        if not self.aliased:
            return spot
        shift = rank * self.per_block
        match self.plan.collective, spot.buffer:
            case Collective.ALLGATHER, Buffer.INPUT:
                return Spot(Buffer.OUTPUT, spot.first + shift)
            case Collective.REDUCE_SCATTER, Buffer.OUTPUT:
                return Spot(Buffer.INPUT, spot.first + shift)
            case ((Collective.ALLREDUCE | Collective.REDUCE | Collective.BROADCAST), Buffer.OUTPUT):
                return Spot(Buffer.INPUT, spot.first)
        return spot


def lay_out(plan: Plan, *, in_place: bool, staged: bool = False) -> Travels:
    """Follow every chunk through every rank.

    Args:
        plan: valid.
        in_place: whether input and output are the same memory; collectives that add serve both places anyway.
        staged: whether what arrives must land in scratch first, unless its place was never used before: for systems
            in which the sender writes the receiver's memory whenever it likes.

    Raises:
        PlanError: no such program can express the plan; the message says why.
    """
    whole = expand(plan)
    _refuse(whole, in_place)
    unit = int(np.gcd.reduce(np.append(whole.chunks.share, whole.denominator)))
    return _Layout(whole, unit, in_place=in_place, staged=staged).travels()


def _refuse(plan: Plan, in_place: bool) -> None:
    name = plan.collective.value
    if plan.collective is Collective.SENDRECV:
        raise PlanError("plan: sendrecv has no counterpart there; export alltoall or another collective")
    if plan.helpers:
        raise PlanError(
            f"plan: its last {plan.helpers} ranks only relay, but there every GPU takes part in the {name}; "
            "solve for the ranks with data alone"
        )
    if plan.demand is not None and np.ptp(plan.demand[~np.eye(plan.members, dtype=bool)]) > 0:
        raise PlanError(
            "plan: it was made for an uneven alltoall, and programs of equal chunks cannot express one; "
            "solve without --demand, or run it with 'synth run'"
        )
    if in_place and plan.collective is Collective.ALLTOALL:
        raise PlanError("plan: an alltoall in place would overwrite what is not sent yet; export it out of place")


@dataclass
class _Layout:
    plan: Plan
    unit: int
    in_place: bool
    staged: bool
    scratch: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = [0] * len(self.plan.ranks)
        self.per_block = self.plan.denominator // self.unit
        self.first, self.parts = self.parts_of_chunks()

    def parts_of_chunks(self) -> tuple[list[int], list[int]]:
        """Where in its block each chunk begins, and its length, in parts."""
        filled: dict[tuple[int, int], int] = {}
        first, parts = [], []
        chunks = self.plan.chunks
        for origin, target, share in zip(
            chunks.origin.tolist(), chunks.target.tolist(), chunks.share.tolist(), strict=True
        ):
            first.append(filled.get((origin, target), 0))
            parts.append(share // self.unit)
            filled[origin, target] = first[-1] + parts[-1]
        return first, parts

    def travels(self) -> Travels:
        transfers = self.plan.transfers
        by_chunk: dict[int, list[int]] = {}
        for position, chunk in enumerate(transfers.chunk.tolist()):
            by_chunk.setdefault(chunk, []).append(position)
        found = [travel for chunk in sorted(by_chunk) for travel in self.follow(chunk, by_chunk[chunk])]
        found.sort(key=lambda travel: (travel.round, travel.src, travel.dst, travel.chunk))
        return Travels(
            plan=self.plan,
            per_block=self.per_block,
            travels=tuple(found),
            copies=tuple(self.copies()),
            scratch=tuple(self.scratch),
            aliased=self.in_place or self.plan.collective.reduces,
        )

    def follow(self, chunk: int, positions: list[int]) -> Iterator[Travel]:
        """One chunk through all its rounds; ``held`` is where each rank has it."""
        transfers = self.plan.transfers
        held: dict[int, Spot] = {}
        homes: dict[int, Spot] = {}
        rounds: dict[int, list[int]] = {}
        for position in positions:
            rounds.setdefault(int(transfers.round[position]), []).append(position)
        for round in sorted(rounds):
            senders = {int(transfers.src[position]) for position in rounds[round]}
            receivers = [int(transfers.dst[position]) for position in rounds[round]]
            before = {rank: held[rank] if rank in held else self.given(chunk, rank) for rank in senders}
            busy: set[int] = set()
            for position in sorted(rounds[round], key=lambda p: int(transfers.src[p])):
                src, dst = int(transfers.src[position]), int(transfers.dst[position])
                home = homes.get(dst) or homes.setdefault(dst, self.home(chunk, dst))
                adds = bool(transfers.reduce[position])
                base = (held.get(dst) or self.given(chunk, dst)) if adds else None
                if (dst in senders and self.same(before[dst], home)) or (
                    self.staged and (adds or self.used(dst, held))
                ):
                    busy.add(dst)
                held[dst] = home
                yield Travel(
                    round=round,
                    src=src,
                    dst=dst,
                    chunk=chunk,
                    parts=self.parts[chunk],
                    source=before[src],
                    target=home,
                    base=base,
                    stage=self.take(dst, self.parts[chunk]) if dst in busy else None,
                    alone=receivers.count(dst) == 1,
                )

    def given(self, chunk: int, rank: int) -> Spot:
        """Where a chunk lies in the input."""
        collective, target = self.plan.collective, int(self.plan.chunks.target[chunk])
        block = target if collective in (Collective.ALLTOALL, Collective.REDUCE_SCATTER) else 0
        return Spot(Buffer.INPUT, block * self.per_block + self.first[chunk])

    def home(self, chunk: int, rank: int) -> Spot:
        """Where a rank keeps a chunk: in its output, or in scratch where it only passes through."""
        collective, origin = self.plan.collective, int(self.plan.chunks.origin[chunk])
        if int(self.plan.chunks.target[chunk]) not in (rank, EVERY):
            return self.take(rank, self.parts[chunk])
        block = origin if collective in (Collective.ALLTOALL, Collective.ALLGATHER) else 0
        return Spot(Buffer.OUTPUT, block * self.per_block + self.first[chunk])

    def take(self, rank: int, parts: int) -> Spot:
        """Fresh scratch."""
        spot = Spot(Buffer.SCRATCH, self.scratch[rank])
        self.scratch[rank] += parts
        return spot

    def used(self, rank: int, held: dict[int, Spot]) -> bool:
        """Whether a rank's home of a chunk holds, or is, something already."""
        return rank in held or (self.in_place and self.plan.collective.reduces)

    def same(self, spot: Spot, home: Spot) -> bool:
        """Whether both may be the same memory, given that both hold the same chunk."""
        outside = Buffer.SCRATCH in (spot.buffer, home.buffer)
        return spot == home or (not outside and self.plan.collective.reduces)

    def copies(self) -> Iterator[Copy]:
        """Each rank's own blocks; in place they are where they belong."""
        if self.in_place:
            return
        size = self.per_block
        for rank in range(len(self.plan.ranks)):
            spots = {
                Collective.ALLGATHER: (Spot(Buffer.INPUT, 0), Spot(Buffer.OUTPUT, rank * size)),
                Collective.ALLTOALL: (Spot(Buffer.INPUT, rank * size), Spot(Buffer.OUTPUT, rank * size)),
                Collective.BROADCAST: (Spot(Buffer.INPUT, 0), Spot(Buffer.OUTPUT, 0)),
            }.get(self.plan.collective)
            if spots and (self.plan.collective is not Collective.BROADCAST or rank == self.plan.root):
                yield Copy(rank=rank, parts=size, source=spots[0], target=spots[1])
