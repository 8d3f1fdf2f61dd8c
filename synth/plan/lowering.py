"""Lowering: a plan and real counts become one program per rank.

The work is split in two, because counts change with every step of a mixture-of-experts model and plans do not:
:class:`Lowering` follows every chunk through one rank once (where it lies, which scratch slot it takes, what is added
to what), and :meth:`Lowering.program` turns that into offsets and lengths with a few numpy passes.

All ranks derive the same message lengths from the same counts: chunks end at cumulative shares of their block,
segments at equal parts of their chunk, both rounded down to ``align`` elements. A message of length zero is dropped
by both sides.
"""

from __future__ import annotations

import numpy as np

from synth.errors import DemandError
from synth.plan.ir import Plan
from synth.plan.layout import Layout, check_counts, layout, starts, unserved
from synth.plan.messages import Messages, Placed, ceil_to, cut_rounds
from synth.plan.pieces import Pieces, assign_slots, by_segment, follow
from synth.plan.program import Buffer, Copies, Program, pick
from synth.plan.symmetry import expand


class Lowering:
    """One rank's part of a plan, followed once and sized for many counts.

    Args:
        plan: the whole plan, or this rank's slice of it.
        rank: of the plan.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan = expand(plan)
        self.rank = rank
        self.before, self.after = share_bounds(self.plan)
        sends, receives, lifetimes = follow(self.plan, rank)
        slots, self.slots = assign_slots(self.plan, lifetimes)
        self.sends = by_segment(sends, self.plan, slots)
        self.receives = by_segment(receives, self.plan, slots)
        self.slot_items = np.array(
            [(slot, chunk, segment) for (chunk, segment), slot in slots.items()], dtype=np.int64
        ).reshape(-1, 3)

    def program(self, counts: np.ndarray | int, *, align: int = 1) -> Program:
        """Size the program.

        Args:
            counts: elements, in the shape that :mod:`synth.plan.layout` describes; the same on every rank.
            align: chunks, segments, slots and packed messages begin at multiples of so many elements where they can.

        Raises:
            DemandError: the counts do not fit the plan.
        """
        checked = check_counts(self.plan, counts)
        if checked.ndim == 2 and self.rank < self.plan.members:
            own = np.zeros_like(checked)  # a slice lists the blocks of its own rank only
            own[self.rank], own[:, self.rank] = checked[self.rank], checked[:, self.rank]
            if (pair := unserved(self.plan, own)) is not None:
                raise DemandError(f"counts: the plan has no pair {pair[0]}:{pair[1]}", subject="counts")
        where = layout(self.plan, checked, self.rank)
        slot_offset = self._slot_offsets(where, align)
        sending = self._place(self.sends, where, slot_offset, align)
        receiving = self._place(self.receives, where, slot_offset, align)
        outgoing = Messages(sending, base=int(slot_offset[-1]), align=align)
        incoming = Messages(receiving, base=outgoing.end, align=align)
        begin, end, size = where.own
        local = Copies(*(np.array([value]) for value in (Buffer.OUTPUT, end, Buffer.INPUT, begin, size)))
        return Program(
            rank=self.rank,
            inputs=where.inputs,
            outputs=where.outputs,
            scratch=incoming.end,
            local=pick(local, local.length > 0),
            rounds=tuple(cut_rounds(outgoing, incoming)),
        )

    def _bounds(self, chunk: np.ndarray, segment: np.ndarray, where: Layout, align: int) -> tuple[np.ndarray, ...]:
        """Begin and end of segments of chunks inside their blocks, in elements."""
        count, whole = where.counts[chunk], self.plan.denominator
        begin = _part(count, self.before[chunk], whole, align)
        length = _part(count, self.after[chunk], whole, align) - begin
        parts = self.plan.segments
        return begin + _part(length, segment, parts, align), begin + _part(length, segment + 1, parts, align)

    def _slot_offsets(self, where: Layout, align: int) -> np.ndarray:
        """[slots + 1] where each scratch slot begins: each as large as the largest piece that ever lies in it."""
        slot, chunk, segment = self.slot_items.T
        begin, end = self._bounds(chunk, segment, where, align)
        sizes = np.zeros(self.slots, dtype=np.int64)
        np.maximum.at(sizes, slot, end - begin)
        return starts(ceil_to(sizes, align))

    def _place(self, pieces: Pieces, where: Layout, slot_offset: np.ndarray, align: int) -> Placed:
        begin, end = self._bounds(pieces.chunk, pieces.segment, where, align)
        places = np.stack(
            [
                where.input_offset[pieces.chunk] + begin,
                where.output_offset[pieces.chunk] + begin,
                slot_offset[pieces.slot],
            ]
        )
        each = np.arange(len(begin))
        kept = np.flatnonzero(end > begin)
        return Placed(
            pieces=pick(pieces, kept),
            offset=places[pieces.buffer, each][kept],
            base_offset=places[np.maximum(pieces.base, 0), each][kept],
            length=(end - begin)[kept],
        )


def lower(plan: Plan, counts: np.ndarray | int, rank: int, *, align: int = 1) -> Program:
    """One rank's program; :class:`Lowering` is cheaper when counts change. Errors as :meth:`Lowering.program`."""
    return Lowering(plan, rank).program(counts, align=align)


def share_bounds(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """[chunks] shares of its block that lie before each chunk, and up to its end; chunks follow each other by index."""
    chunks = plan.chunks
    block = (chunks.origin + 1) * (len(plan.ranks) + 1) + chunks.target + 1
    order = np.argsort(block, kind="stable")
    total = starts(chunks.share[order])
    first = np.searchsorted(block[order], block[order], side="left")
    after = np.empty(len(chunks), dtype=np.int64)
    after[order] = total[1:] - total[first]
    return after - chunks.share, after


def _part(count: np.ndarray, part: np.ndarray, whole: int, align: int) -> np.ndarray:
    """``count * part / whole`` rounded down to ``align`` (exact at ``whole``), without overflow."""
    quotient, rest = np.divmod(count, whole)
    if whole >= 2**31:  # rest * part could pass 2^63
        cut = quotient * part + (rest.astype(object) * part.astype(object) // whole).astype(np.int64)
    else:
        cut = quotient * part + rest * part // whole
    aligned: np.ndarray = np.where(part == whole, cut, cut - cut % align)
    return aligned
