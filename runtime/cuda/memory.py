"""Device memory and local work on it, by the fused kernels; everything is enqueued on one stream at a time."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any
from weakref import WeakSet

import numpy as np

from runtime.arrays import Array
from runtime.buffers import Buffers, Slots
from runtime.cuda.captures import check_not_virtual
from runtime.cuda.kernels import COPY_SHAPE, SUM_SHAPE, Shape, copy_kernel, slots_kernel, sum_kernel
from runtime.elements import Element, Reduction
from synth.errors import InvalidUsage
from synth.plan.layout import starts
from synth.plan.program import Copies, Program, Sums

TIMED_EVERY = 64
_ON_DEVICE = 3
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
        self.allocate_scratch: Callable[[int], Any] = lambda size: self._cupy.empty(size, dtype=np.uint8)
        self.direct = True  # messages begin and end in the arrays themselves
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
        self._staging = self._cupy.empty(0, dtype=np.uint8)
        self._dropped = self._cupy.zeros(1, dtype=np.uint64)
        self._marks: list[Any] = []
        self.recordings: WeakSet[Any] = WeakSet()
        self._recording = False
        self._foreign: dict[int, Any] = {}
        self._loaded: set[Any] = set()

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
        if self.direct and self.stream.is_capturing():
            check_not_virtual(source.data.ptr, target.data.ptr)
        needed = scratch * element.itemsize
        if self._scratch.size < needed:
            self._not_captured()
            self.stream.synchronize()  # an earlier operation may still use the old one
            self._scratch = self.allocate_scratch(needed)
        return Buffers((source, target, self._scratch), element)

    def prepare(self, program: Program, element: Element) -> None:
        """Put a program's tables on the device in one transfer; programs that come back find theirs."""
        key = (id(program), element.itemsize)
        if key not in self._tables:
            self._not_captured()
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
        shape, kernel = self._copying, self._ready(copy_kernel(self._copying))
        kernel((min(tiles, self._processors * shape.blocks),), (shape.threads,), arguments)

    def sum(self, sums: Sums, buffers: Buffers, reduction: Reduction) -> None:
        """See :meth:`runtime.buffers.Memory.sum`."""
        if not len(sums):
            return
        table, tiles = self._current[id(sums)]
        pointers = [part.data.ptr for part in buffers.parts]
        arguments = (table, np.int32(len(sums)), np.int32(len(sums.term_buffer)), np.int64(tiles), *pointers)
        shape, kernel = self._adding, self._ready(sum_kernel(buffers.element.name, reduction, self._adding))
        kernel((min(tiles, self._processors * shape.blocks),), (shape.threads,), arguments)

    def staging(self, bytes: int) -> Any:
        """See :meth:`runtime.buffers.Memory.staging`."""
        if self._staging.size < bytes:
            self._not_captured()
            self.stream.synchronize()  # an earlier operation may still use the old one
            self._staging = self._cupy.empty(bytes, dtype=np.uint8)
        return self._staging[:bytes]

    def stage(self, data: Any) -> Any:
        """See :meth:`runtime.buffers.Memory.stage`."""
        copied = self.staging(data.size)
        self._cupy.cuda.runtime.memcpyAsync(copied.data.ptr, data.data.ptr, data.size, _ON_DEVICE, self.stream.ptr)
        return copied

    def fill_slots(self, rows: Array, counts: Array, slots: Slots, blocks: Any) -> None:
        """See :meth:`runtime.buffers.Memory.fill_slots`; one launch, and the host reads nothing."""
        shape = self._copying
        tiles = -(-slots.capacity * slots.row // shape.tile)
        blocks_each = max(1, min(tiles, -(-self._processors * shape.blocks // slots.peers)))
        numbers = map(np.int64, (slots.capacity, slots.row, slots.block))
        arguments = (
            rows.data.data.ptr, np.int64(rows.rows * (slots.stride or 1)), np.int64(slots.stride),
            counts.data.data.ptr, np.int32(counts.element.itemsize == 8), *numbers,
            blocks.data.ptr, self._dropped,
        )  # fmt: skip
        self._ready(slots_kernel(shape))((blocks_each, slots.peers), (shape.threads,), arguments)

    def dropped(self) -> int:
        """See :meth:`runtime.buffers.Memory.dropped`."""
        self.stream.synchronize()
        return int(self._dropped.get()[0])

    def timing(self, calls: int) -> bool:
        """The first calls and then every 64th: a mark costs the host about a microsecond. None in a graph."""
        return (calls < 4 or calls % TIMED_EVERY == 0) and not self.stream.is_capturing()

    def now(self) -> Any:
        """See :meth:`runtime.buffers.Memory.now`: an event on the stream in use."""
        event = self._marks.pop() if self._marks else self._cupy.cuda.Event()
        event.record(self.stream)
        return event

    def elapsed(self, first: Any, second: Any) -> float | None:
        """See :meth:`runtime.buffers.Memory.elapsed`."""
        if not second.done:
            return None
        return float(self._cupy.cuda.get_elapsed_time(first, second)) / 1e3

    def recycle(self, marks: Sequence[Any]) -> None:
        """See :meth:`runtime.buffers.Memory.recycle`."""
        self._marks += marks

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
            elif not self._recording:  # the graph is the caller's: when it ends nobody tells
                self._foreign |= {id(part): part for part in (self._scratch, self._staging, self._current)}

    @contextlib.contextmanager
    def side_stream(self, given: Any) -> Iterator[None]:
        """Enqueue on this memory's own stream, after what the caller's current stream holds."""
        stream = current_stream(given)
        if stream.is_capturing():
            raise InvalidUsage("wait=False: the caller's stream is capturing; a graph takes wait=True only")
        ready = self._cupy.cuda.Event(disable_timing=True)
        ready.record(stream)
        self._own.wait_event(ready)
        self._own.wait_event(self._last)
        self.stream, self._aside = self._own, True
        try:
            with self._own:
                yield
                self._last.record(self._own)
        finally:
            self._aside = False

    @property
    def streams(self) -> tuple[Any, ...]:
        """The stream in use and this memory's own."""
        return (self.stream, self._own)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While a graph is recorded that keeps :meth:`held` itself."""
        before, self._recording = self.stream, True
        try:
            yield
        finally:
            self.stream, self._recording = before, False  # nothing runs on the stream that recorded

    def _ready(self, kernel: Any) -> Any:
        """A kernel that is launched now: its first launch compiles and loads it, which no graph can hold."""
        if kernel not in self._loaded:
            self._not_captured()
            self._loaded.add(kernel)
        return kernel

    def _not_captured(self) -> None:
        """What follows takes memory, loads code or waits, which no graph can hold."""
        if self.stream.is_capturing():
            raise InvalidUsage(
                "a graph is being recorded of a call that was not made before; make it once first, and put calls with "
                "many different counts into several graphs"
            )

    def held(self) -> tuple[Any, ...]:
        """What a recorded graph points into: it must stay as long as the graph."""
        return (self._scratch, self._staging, *self._tables.values())

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
        return _external(torch.cuda.current_stream(given.device).cuda_stream, given.device.index)
    return cupy.cuda.get_current_stream()


@lru_cache(maxsize=256)
def _external(pointer: int, device: int) -> Any:
    """A stream that torch owns, made once: CuPy 14 warns each time, but its successor needs torch 2.10."""
    cupy: Any = import_module("cupy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cupy.cuda.ExternalStream(pointer, device)
