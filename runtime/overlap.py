"""Output over input: where they share memory, and whether a program may run so without a copy of its input."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from synth.collective import Collective
from synth.plan.program import Buffer, Copies, Message, Program, Sums, pick


def shift_of(source: Any, target: Any) -> int | None:
    """Bytes from the first of ``source`` to the first of ``target``; None where the two share no memory.

    Args:
        source: one-dimensional bytes, numpy or CuPy.
        target: the same.
    """
    begin, other = _address(source), _address(target)
    apart = other >= begin + len(source) or begin >= other + len(target)
    return None if apart or not len(source) or not len(target) else other - begin


def _address(data: Any) -> int:
    if isinstance(data, np.ndarray):
        return int(data.__array_interface__["data"][0])
    return int(data.data.ptr)


def native_in_place(collective: Collective, rank: int, part: int, shift: int) -> bool:
    """Whether NCCL's own collective takes an output that lies ``shift`` bytes behind its input.

    Args:
        collective: which.
        rank: this rank.
        part: bytes of one rank's part, for allgather and reduce_scatter.
        shift: see :func:`shift_of`.
    """
    match collective:
        case Collective.ALLREDUCE | Collective.REDUCE | Collective.BROADCAST:
            return shift == 0
        case Collective.ALLGATHER:
            return shift == -rank * part
        case Collective.REDUCE_SCATTER:
            return shift == rank * part
        case _:
            return False


@lru_cache(maxsize=256)
def in_place(program: Program, shift: int) -> Program | None:
    """The program for an output that lies ``shift`` elements behind the input; None where it needs a copy of the input.

    It needs one when it reads input after it has written other output there, or while it does. Copies of elements
    onto themselves are left out.
    """
    written = _Written()
    local = program.local
    onto_itself = (local.src_buffer == Buffer.INPUT) & (local.src_offset - shift == local.dst_offset)
    local = pick(local, ~(onto_itself & (local.dst_buffer == Buffer.OUTPUT)))
    if not _copies_fit(local, shift, written):
        return None
    for round in program.rounds:
        if not _copies_fit(round.pack, shift, written):
            return None
        received = _messages(round.receives, Buffer.OUTPUT)
        sent = _messages(round.sends, Buffer.INPUT) - shift
        written.add(received)
        if written.meets(sent) or not _copies_fit(round.unpack, shift, written):
            return None
        if not _sums_fit(round.sums, shift, written):
            return None
    return replace(program, local=local)


class _Written:
    """Output elements written so far, as disjoint intervals in order."""

    def __init__(self) -> None:
        self._begin = self._end = np.zeros(0, dtype=np.int64)

    def add(self, intervals: np.ndarray) -> None:
        """Remember [n, 2] intervals."""
        if len(intervals):
            both = np.concatenate([np.stack([self._begin, self._end], axis=1), intervals])
            both = both[np.argsort(both[:, 0], kind="stable")]
            reach = np.maximum.accumulate(both[:, 1])
            opens = np.concatenate([[True], both[1:, 0] > reach[:-1]])
            self._begin = both[opens, 0]
            self._end = reach[np.concatenate([np.flatnonzero(opens)[1:] - 1, [len(both) - 1]])]

    def meets(self, intervals: np.ndarray) -> bool:
        """Whether any of [n, 2] intervals holds an element that was written."""
        if not len(self._begin) or not len(intervals):
            return False
        before = np.searchsorted(self._begin, intervals[:, 1], side="left") - 1
        return bool((self._end[before] > intervals[:, 0])[before >= 0].any())


def _intervals(buffer: np.ndarray, offset: np.ndarray, length: np.ndarray, wanted: Buffer) -> np.ndarray:
    kept = (buffer == wanted) & (length > 0)
    return np.stack([offset[kept], offset[kept] + length[kept]], axis=1).astype(np.int64)


def _messages(messages: tuple[Message, ...], wanted: Buffer) -> np.ndarray:
    found = [(m.offset, m.offset + m.length) for m in messages if m.buffer == wanted]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _copies_fit(copies: Copies, shift: int, written: _Written) -> bool:
    written.add(_intervals(copies.dst_buffer, copies.dst_offset, copies.length, Buffer.OUTPUT))
    return not written.meets(_intervals(copies.src_buffer, copies.src_offset, copies.length, Buffer.INPUT) - shift)


def _sums_fit(sums: Sums, shift: int, written: _Written) -> bool:
    """A sum may read the very elements it writes; another sum's, or what was written before, it may not."""
    count = np.diff(sums.first)
    length, owner = np.repeat(sums.length, count), np.repeat(np.arange(len(sums)), count)
    reads = _intervals(sums.term_buffer, sums.term_offset, length, Buffer.INPUT) - shift
    if written.meets(reads):
        return False
    from_input = (sums.term_buffer == Buffer.INPUT) & (length > 0)
    own = (sums.buffer[owner] == Buffer.OUTPUT) & (sums.offset[owner] == sums.term_offset - shift)
    written.add(_intervals(sums.buffer, sums.offset, sums.length, Buffer.OUTPUT))
    others = (from_input & ~own)[from_input]
    return not written.meets(reads[others])
