"""The memory an operation works on, and local work on it: numpy on the host.

:class:`Memory` is what an executor needs of a memory; :mod:`runtime.cuda.memory` is the other implementation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runtime.arrays import Array
from runtime.elements import Element, Reduction, narrow, widen
from synth.plan.program import Copies, Program, Sums


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """Input, output and scratch of one operation, in the order of :class:`synth.plan.program.Buffer`.

    Attributes:
        parts: one-dimensional bytes, as the memory keeps them.
        element: what the offsets of a program count.
    """

    parts: tuple[Any, Any, Any]
    element: Element

    def region(self, buffer: int, offset: int, length: int) -> Any:
        """The bytes of some elements, not copied."""
        size = self.element.itemsize
        return self.parts[buffer][offset * size : (offset + length) * size]


class Memory(Protocol):
    """Where an operation's data lies."""

    def bind(self, source: Any, target: Any, scratch: int, element: Element) -> Buffers:
        """Put an operation's bytes together with ``scratch`` elements of scratch, which the next operation reuses."""

    def prepare(self, program: Program, element: Element) -> None:
        """Get ready for the local work of a program."""

    def stream_of(self, given: Any) -> AbstractContextManager[None]:
        """Inside, work is ordered with what the caller does with this array."""

    def copy(self, copies: Copies, buffers: Buffers) -> None:
        """Carry out local copies."""

    def sum(self, sums: Sums, buffers: Buffers, reduction: Reduction) -> None:
        """Carry out local additions."""

    def staging(self, bytes: int) -> Any:
        """Bytes that the next operation that stages reuses."""

    def stage(self, data: Any) -> Any:
        """A copy of some bytes in staging memory."""

    def fill_slots(self, rows: Array, counts: Array, slots: Slots, blocks: Any) -> None:
        """Put rows into blocks of slots, and behind each block how many it holds and how many found no room."""

    def dropped(self) -> int:
        """Rows that found no room so far; waits for what is under way."""

    def timing(self, calls: int) -> bool:
        """Whether to time the next call of one that ran ``calls`` times."""

    def now(self) -> Any:
        """A mark of what has been enqueued so far; marks are compared by :meth:`elapsed`."""

    def elapsed(self, first: Any, second: Any) -> float | None:
        """Seconds between two marks; None while the later one is not reached. Never waits."""

    def recycle(self, marks: Sequence[Any]) -> None:
        """Take marks back that nobody compares any more."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Blocks of equally many slots, one block per peer, each with a note of 16 bytes at its end.

    Attributes:
        peers: blocks.
        capacity: rows a block holds.
        row: bytes of a row.
        stride: rows from one peer's first row to the next peer's; 0 where rows lie one peer after the other.
    """

    peers: int
    capacity: int
    row: int
    stride: int = 0

    @property
    def block(self) -> int:
        """Bytes of a block, a multiple of 16."""
        return -(-self.capacity * self.row // 16) * 16 + 16


class HostMemory:
    """Memory of this process, by numpy."""

    def __init__(self) -> None:
        self._scratch = np.empty(0, dtype=np.uint8)
        self._staging = np.empty(0, dtype=np.uint8)
        self._dropped = 0

    def bind(self, source: np.ndarray, target: np.ndarray, scratch: int, element: Element) -> Buffers:
        """See :meth:`Memory.bind`."""
        needed = scratch * element.itemsize
        if len(self._scratch) < needed:
            self._scratch = np.empty(needed, dtype=np.uint8)
        return Buffers((source, target, self._scratch), element)

    def prepare(self, program: Program, element: Element) -> None:
        """Nothing to do."""

    @contextmanager
    def stream_of(self, given: Any) -> Iterator[None]:
        """Nothing to do: the host does one thing after the other."""
        yield

    def copy(self, copies: Copies, buffers: Buffers) -> None:
        """See :meth:`Memory.copy`."""
        if not len(copies):
            return
        columns = (copies.dst_buffer, copies.dst_offset, copies.src_buffer, copies.src_offset, copies.length)
        for dst, to, src, at, length in zip(*(column.tolist() for column in columns), strict=True):
            buffers.region(dst, to, length)[:] = buffers.region(src, at, length)

    def sum(self, sums: Sums, buffers: Buffers, reduction: Reduction) -> None:
        """See :meth:`Memory.sum`."""
        if not len(sums):
            return
        combine, element = reduction.ufunc, buffers.element
        columns = (sums.buffer, sums.offset, sums.length, sums.first[:-1], sums.first[1:])
        for buffer, offset, length, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            terms = [
                widen(buffers.region(sums.term_buffer[term], int(sums.term_offset[term]), length), element)
                for term in range(begin, end)
            ]
            total = terms[0].copy()
            for term in terms[1:]:
                combine(total, term, out=total)
            buffers.region(buffer, offset, length)[:] = narrow(total, element)

    def staging(self, bytes: int) -> np.ndarray:
        """See :meth:`Memory.staging`."""
        if len(self._staging) < bytes:
            self._staging = np.zeros(bytes, dtype=np.uint8)
        return self._staging[:bytes]

    def stage(self, data: np.ndarray) -> np.ndarray:
        """See :meth:`Memory.stage`."""
        copied = self.staging(len(data))
        copied[:] = data
        return copied

    def fill_slots(self, rows: Array, counts: Array, slots: Slots, blocks: np.ndarray) -> None:
        """See :meth:`Memory.fill_slots`."""
        wanted = counts.data.view(counts.element.name).astype(np.int64).clip(0)
        peers = np.arange(slots.peers)
        begin = peers * slots.stride if slots.stride else np.cumsum(wanted) - wanted
        available = len(rows.data) // slots.row if slots.row else int(begin[-1] + wanted[-1])
        kept = np.minimum(np.minimum(wanted, slots.capacity), (available - begin).clip(0))
        for peer, first, count in zip(peers.tolist(), begin.tolist(), kept.tolist(), strict=True):
            block = blocks[peer * slots.block : (peer + 1) * slots.block]
            block[: count * slots.row] = rows.data[first * slots.row : (first + count) * slots.row]
            block[-16:].view(np.int64)[:] = count, wanted[peer] - count
        self._dropped += int((wanted - kept).sum())

    def dropped(self) -> int:
        """See :meth:`Memory.dropped`."""
        return self._dropped

    def timing(self, calls: int) -> bool:
        """Always: reading the clock costs next to nothing."""
        return True

    def now(self) -> float:
        """See :meth:`Memory.now`."""
        return time.perf_counter()

    def elapsed(self, first: float, second: float) -> float:
        """See :meth:`Memory.elapsed`."""
        return second - first

    def recycle(self, marks: Sequence[Any]) -> None:
        """Nothing to do."""
