"""The memory an operation works on, and local work on it: numpy on the host.

:class:`Memory` is what an executor needs of a memory; :mod:`runtime.cuda.memory` is the other implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

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


class HostMemory:
    """Memory of this process, by numpy."""

    def __init__(self) -> None:
        self._scratch = np.empty(0, dtype=np.uint8)

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
