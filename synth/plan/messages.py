"""Packing the pieces of one rank into messages: one per peer, direction and round, contiguous or packed in scratch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.plan.layout import starts
from synth.plan.pieces import NOWHERE, Pieces
from synth.plan.program import Buffer, Copies, Message, Round, Sums, pick


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Pieces with their real offsets and lengths; empty ones are gone."""

    pieces: Pieces
    offset: np.ndarray
    base_offset: np.ndarray
    length: np.ndarray


class Messages:
    """Messages of one direction: which pieces each holds, and where it is packed when they do not lie together.

    Attributes:
        end: first scratch element after the packed messages.
        round, peer, buffer, offset, length: [messages] columns.
        packed: [pieces] whether the piece travels in a packed message.
        packed_offset: [pieces] where in scratch.
    """

    def __init__(self, placed: Placed, *, base: int, align: int) -> None:
        self.placed = placed
        pieces, offset, length = placed.pieces, placed.offset, placed.length
        count = len(length)
        opens = np.ones(count, dtype=bool)
        opens[1:] = (pieces.round[1:] != pieces.round[:-1]) | (pieces.peer[1:] != pieces.peer[:-1])
        apart = pieces.staged | pieces.reduce
        self.joined = ~opens
        self.joined[1:] &= (pieces.buffer[1:] == pieces.buffer[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        self.joined[1:] &= pieces.reduce[1:] == pieces.reduce[:-1]
        first = np.flatnonzero(opens)
        message = np.cumsum(opens) - 1
        self.round, self.peer = pieces.round[first], pieces.peer[first]
        if count == 0:
            self.length = self.buffer = self.offset = self.packed_offset = np.zeros(0, dtype=np.int64)
            self.packed = np.zeros(0, dtype=bool)
            self.end = base
            return
        self.length = np.add.reduceat(length, first)
        packed = np.logical_or.reduceat(apart | ~(self.joined | opens), first)
        taken = np.where(packed, ceil_to(self.length, align), 0)
        total = starts(taken)
        begin = total[:-1] - total[np.searchsorted(self.round, self.round, side="left")]
        self.end = base + int((begin + taken).max())
        self.buffer = np.where(packed, Buffer.SCRATCH, pieces.buffer[first])
        self.offset = np.where(packed, base + begin, offset[first])
        inside = starts(length)
        self.packed = packed[message]
        self.packed_offset = self.offset[message] + inside[:-1] - inside[first][message]

    def messages(self, begin: int, end: int) -> tuple[Message, ...]:
        """Messages ``begin`` to ``end`` as values."""
        columns = (self.peer, self.buffer, self.offset, self.length)
        rows = zip(*(column[begin:end].tolist() for column in columns), strict=True)
        return tuple(Message(peer, Buffer(buffer), offset, length) for peer, buffer, offset, length in rows)

    def copies(self, *, out: bool) -> tuple[np.ndarray, Copies]:
        """(round of each, copies) between where pieces lie and their packed messages; neighbours become one copy."""
        pieces, length = self.placed.pieces, self.placed.length
        chosen = self.packed & ~pieces.reduce
        heads = np.flatnonzero(chosen & ~self.joined)
        # a piece that joins its neighbour has the same message and kind, so a run never leaves ``chosen``
        merged = np.add.reduceat(np.where(chosen, length, 0), heads) if len(heads) else length[:0]
        ends = (pieces.buffer[heads], self.placed.offset[heads])
        scratch = (np.full(len(heads), int(Buffer.SCRATCH)), self.packed_offset[heads])
        columns = (*scratch, *ends, merged) if out else (*ends, *scratch, merged)
        return pieces.round[heads], Copies(*columns)

    def sums(self) -> tuple[np.ndarray, Sums]:
        """(round of each, additions) of received contributions, peers in ascending order after the own part."""
        pieces, placed = self.placed.pieces, self.placed
        chosen = np.flatnonzero(pieces.reduce)
        chosen = chosen[
            np.lexsort((pieces.peer[chosen], pieces.segment[chosen], pieces.chunk[chosen], pieces.round[chosen]))
        ]
        key = np.stack([pieces.round[chosen], pieces.chunk[chosen], pieces.segment[chosen]])
        opens = np.ones(len(chosen), dtype=bool)
        opens[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        heads = chosen[opens]
        based = pieces.base[heads] != NOWHERE
        group = np.cumsum(opens) - 1
        order = np.argsort(np.concatenate([np.flatnonzero(based), group]), kind="stable")
        terms = np.concatenate([pieces.base[heads][based], np.full(len(chosen), int(Buffer.SCRATCH))])[order]
        offsets = np.concatenate([placed.base_offset[heads][based], self.packed_offset[chosen]])[order]
        sizes = np.bincount(group, minlength=len(heads)) + based
        return pieces.round[heads], Sums(
            pieces.buffer[heads], placed.offset[heads], placed.length[heads], starts(sizes), terms, offsets
        )


def cut_rounds(outgoing: Messages, incoming: Messages) -> list[Round]:
    """Cut messages, copies and additions into rounds."""
    numbers = np.union1d(outgoing.round, incoming.round)
    pack_round, pack = outgoing.copies(out=True)
    unpack_round, unpack = incoming.copies(out=False)
    sums_round, sums = incoming.sums()

    def cut(rounds: np.ndarray) -> list[tuple[int, int]]:
        low = np.searchsorted(rounds, numbers, side="left").tolist()
        high = np.searchsorted(rounds, numbers, side="right").tolist()
        return list(zip(low, high, strict=True))

    return [
        Round(
            number=number,
            pack=pick(pack, slice(*p)),
            sends=outgoing.messages(*s),
            receives=incoming.messages(*r),
            unpack=pick(unpack, slice(*u)),
            sums=_pick_sums(sums, *a),
        )
        for number, s, r, p, u, a in zip(
            numbers.tolist(),
            cut(outgoing.round),
            cut(incoming.round),
            cut(pack_round),
            cut(unpack_round),
            cut(sums_round),
            strict=True,
        )
    ]


def _pick_sums(sums: Sums, begin: int, end: int) -> Sums:
    first = sums.first[begin : end + 1]
    terms = slice(int(first[0]), int(first[-1]))
    return Sums(
        sums.buffer[begin:end],
        sums.offset[begin:end],
        sums.length[begin:end],
        first - first[0],
        sums.term_buffer[terms],
        sums.term_offset[terms],
    )


def ceil_to(lengths: np.ndarray, align: int) -> np.ndarray:
    """Lengths rounded up to multiples of ``align``."""
    return -(-lengths // align) * align
