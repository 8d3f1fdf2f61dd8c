"""Device memory and local work on it, by the fused kernels; everything is enqueued on one stream at a time."""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from weakref import WeakSet

import numpy as np

from runtime.buffers import Buffers
from runtime.cuda.kernels import COPY_SHAPE, SUM_SHAPE, Shape, copy_kernel, sum_kernel
from runtime.elements import Element, Reduction
from synth.plan.layout import starts
from synth.plan.program import Copies, Program, Sums

TABLES_KEPT = 256
"""Programs whose tables stay on the device."""


class CudaMemory:
    """Memory of one GPU.

    Args:
        device: CUDA's number of it.
        copying: shape of the kernel that copies.
        adding: shape of the kernel that adds.
    """

    def __init__(self, device: int, *, copying: Shape = COPY_SHAPE, adding: Shape = SUM_SHAPE) -> None:
        self._cupy: Any = import_module("cupy")
        self.device = device
        self._scratch = self._cupy.empty(0, dtype=np.uint8)
        attributes = self._cupy.cuda.Device(device).attributes
        self._processors = int(attributes["MultiProcessorCount"])
        self._copying, self._adding = copying, adding
        self._tables: OrderedDict[tuple[int, int], tuple[Program, dict[int, Any]]] = OrderedDict()
        self._current: dict[int, Any] = {}
        self.stream: Any = self._cupy.cuda.Stream(non_blocking=True)
        self._own = self.stream
        self._last = self._cupy.cuda.Event(disable_timing=True)
        self._aside = False
        self.recordings: WeakSet[Any] = WeakSet()

    def upload(self, array: np.ndarray) -> Any:
        """A copy of a host array on this GPU, ready for any stream."""
        copied = self._cupy.asarray(array)
        self._cupy.cuda.Device(self.device).synchronize()
        return copied

    def download(self, array: Any) -> np.ndarray:
        """A copy of a device array on the host."""
        copied: np.ndarray = self._cupy.asnumpy(array)
        return copied

    def bind(self, source: Any, target: Any, scratch: int, element: Element) -> Buffers:
        """See :meth:`runtime.buffers.Memory.bind`."""
        needed = scratch * element.itemsize
        if self._scratch.size < needed:
            self.stream.synchronize()  # an earlier operation may still use the old one
            self._scratch = self._cupy.empty(needed, dtype=np.uint8)
        return Buffers((source, target, self._scratch), element)

    def prepare(self, program: Program, element: Element) -> None:
        """Put a program's tables on the device in one transfer; programs that come back find theirs."""
        key = (id(program), element.itemsize)
        if key not in self._tables:
            self._tables[key] = (program, self._upload(program, element.itemsize))
            if len(self._tables) > TABLES_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        self._current = self._tables[key][1]

    def copy(self, copies: Copies, buffers: Buffers) -> None:
        """See :meth:`runtime.buffers.Memory.copy`."""
        if not len(copies):
            return
        table, tiles = self._current[id(copies)]
        pointers = [part.data.ptr for part in buffers.parts]
        arguments = (table, np.int32(len(copies)), np.int64(tiles), *pointers, np.int32(buffers.element.itemsize))
        shape = self._copying
        copy_kernel(shape)((min(tiles, self._processors * shape.blocks),), (shape.threads,), arguments)

    def sum(self, sums: Sums, buffers: Buffers, reduction: Reduction) -> None:
        """See :meth:`runtime.buffers.Memory.sum`."""
        if not len(sums):
            return
        table, tiles = self._current[id(sums)]
        pointers = [part.data.ptr for part in buffers.parts]
        arguments = (table, np.int32(len(sums)), np.int32(len(sums.term_buffer)), np.int64(tiles), *pointers)
        shape, kernel = self._adding, sum_kernel(buffers.element.name, reduction, self._adding)
        kernel((min(tiles, self._processors * shape.blocks),), (shape.threads,), arguments)

    @contextlib.contextmanager
    def stream_of(self, given: Any) -> Iterator[None]:
        """Enqueue on the caller's current stream, after everything this memory enqueued elsewhere."""
        if self._aside:
            yield
            return
        stream = current_stream(given)
        if stream.ptr != self.stream.ptr:
            if not stream.is_capturing():
                stream.wait_event(self._last)
            self.stream = stream
        with stream:
            yield
            if not stream.is_capturing():
                self._last.record(stream)

    @contextlib.contextmanager
    def side_stream(self, given: Any) -> Iterator[None]:
        """Enqueue on this memory's own stream, after what the caller's current stream holds."""
        ready = self._cupy.cuda.Event(disable_timing=True)
        ready.record(current_stream(given))
        self._own.wait_event(ready)
        self._own.wait_event(self._last)
        self.stream, self._aside = self._own, True
        try:
            with self._own:
                yield
                self._last.record(self._own)
        finally:
            self._aside = False

    def held(self) -> tuple[Any, ...]:
        """What a recorded graph points into: it must stay as long as the graph."""
        return (self._scratch, *self._tables.values())

    def _upload(self, program: Program, itemsize: int) -> dict[int, Any]:
        columns: list[np.ndarray] = []
        places: dict[int, tuple[int, int]] = {}
        at = 0
        works: list[Copies | Sums] = [program.local]
        for round in program.rounds:
            works += [round.pack, round.unpack, round.sums]
        for work in works:
            if not len(work):
                continue
            shape = self._copying if isinstance(work, Copies) else self._adding
            tiles = starts(-(-work.length * itemsize // shape.tile))
            if isinstance(work, Copies):
                part = [work.dst_buffer, work.dst_offset, work.src_buffer, work.src_offset, work.length, tiles]
            else:
                part = [work.buffer, work.offset, work.length, work.first, tiles, work.term_buffer, work.term_offset]
            places[id(work)] = (at, int(tiles[-1]))
            columns += part
            at += sum(len(column) for column in part)
        if not columns:
            return {}
        table = self._cupy.asarray(np.concatenate(columns).astype(np.int64))
        return {key: (table[begin:], tiles) for key, (begin, tiles) in places.items()}


def current_stream(given: Any) -> Any:
    """The stream that is current in the library of an array, as CuPy's."""
    cupy: Any = import_module("cupy")
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return cupy.cuda.ExternalStream(torch.cuda.current_stream(given.device).cuda_stream, given.device.index)
    return cupy.cuda.get_current_stream()
