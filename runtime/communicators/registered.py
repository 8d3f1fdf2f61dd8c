"""Messages through memory that NCCL allocated and that is registered with it: NCCL then copies once, not twice.

NCCL wants the buffers of a call registered on all ranks or on none. Where they were mixed (the scratch of one rank,
but not its peer's array where the message ended), eight ranks on an H200 got wrong data or hung with NCCL 2.32.3. So
every message lies in registered memory on both sides here, and its data is copied from and to the caller's arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from runtime.buffers import Buffers
from runtime.communicators.library import Library
from runtime.cuda.captures import check_host_may_wait
from synth.plan.program import Buffer, Message

REGISTER = "SYNTH_REGISTER"
"""``on``, on all ranks: messages go through registered memory. Default off: what it gains was not measured."""
_APART = 128
"""Messages begin at multiples of so many elements."""
_LEAST = 2**21
_ON_DEVICE = 3


class Passage(NamedTuple):
    """Messages of one round in registered memory, and the copies before and after it.

    Attributes:
        sends: in ``buffers``.
        receives: in ``buffers``.
        buffers: registered.
        before: to be enqueued before the messages.
        after: to be enqueued once NCCL has enqueued the messages; it may do that on a thread of its own.
    """

    sends: Sequence[Message]
    receives: Sequence[Message]
    buffers: Buffers
    before: tuple[_Copy, ...]
    after: tuple[_Copy, ...]


def enqueue(copies: Sequence[_Copy], stream: int) -> None:
    """Enqueue copies on one of CUDA's streams."""
    runtime: Any = import_module("cupy").cuda.runtime
    for copy in copies:
        runtime.memcpyAsync(copy.target, copy.source, copy.size, _ON_DEVICE, stream)


class Registered:
    """Registered memory of one communicator and its parts, kept until they end.

    Args:
        library: the whole communicator, connected.
        device: CUDA's number of the GPU.
    """

    def __init__(self, library: Library, device: int) -> None:
        self._libraries, self._device = [library], device
        self._sizes: dict[int, int] = {}
        self._handles: list[tuple[Library, int]] = []
        self._areas: dict[int, Any] = {}

    def works(self) -> bool:
        """Whether this binding allocates and registers memory, and NCCL's settings let it."""
        return self._take(_LEAST) != 0 and bool(self._handles)

    def add(self, part: Library) -> None:
        """Register everything with a part too."""
        self._libraries.append(part)
        for pointer, size in self._sizes.items():
            self._register(part, pointer, size)

    def allocate(self, bytes: int) -> Any:
        """At least so many bytes, registered; sizes double, since nothing is given back before the end."""
        cupy: Any = import_module("cupy")
        size = 1 << max(bytes - 1, _LEAST - 1).bit_length()
        memory = cupy.cuda.UnownedMemory(self._take(size), size, self, device_id=self._device)
        return cupy.ndarray(size, dtype=np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))

    def through(
        self, library: Library, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers
    ) -> Passage:
        """Where the messages of one round lie instead: those outside of scratch in an area of their own.

        Args:
            library: the whole communicator or a part, whose rounds follow each other on one stream.
            sends: what this rank sends.
            receives: what it receives.
            buffers: whose scratch is registered.
        """
        end = 0
        moved: list[Message] = []
        for message in (*sends, *receives):
            if message.buffer == Buffer.SCRATCH:
                moved.append(message)
            else:
                moved.append(replace(message, buffer=Buffer.INPUT, offset=end))
                end += -(-message.length // _APART) * _APART
        area = self._area(library, end * buffers.element.itemsize)
        passing = Buffers((area, area, buffers.parts[Buffer.SCRATCH]), buffers.element)
        count = len(sends)
        into, out = zip(sends, moved[:count], strict=True), zip(moved[count:], receives, strict=True)
        return Passage(
            moved[:count],
            moved[count:],
            passing,
            tuple(_Copy.of(buffers, own, passing, its) for own, its in into if own is not its),
            tuple(_Copy.of(passing, its, buffers, own) for its, own in out if own is not its),
        )

    def clear(self) -> None:
        """Deregister everything, before the communicators end."""
        for library, handle in self._handles:
            library.deregister(handle)
        self._handles.clear()

    def free(self) -> None:
        """Give the memory back, after they ended."""
        for pointer in self._sizes:
            self._libraries[0].free(pointer)
        self._sizes.clear()

    def _area(self, library: Library, bytes: int) -> Any:
        area = self._areas.get(id(library))
        if area is None or area.size < bytes:
            check_host_may_wait("memory to register")
            area = self._areas[id(library)] = self.allocate(bytes)
        return area

    def _take(self, size: int) -> int:
        pointer = self._libraries[0].allocate(size)
        if pointer:
            self._sizes[pointer] = size
            for library in self._libraries:
                self._register(library, pointer, size)
        return pointer

    def _register(self, library: Library, pointer: int, size: int) -> None:
        handle = library.register(pointer, size)
        if handle is not None:
            self._handles.append((library, handle))


class _Copy(NamedTuple):
    """A copy on this GPU: addresses, and bytes."""

    target: int
    source: int
    size: int

    @classmethod
    def of(cls, buffers: Buffers, source: Message, others: Buffers, target: Message) -> _Copy:
        size = buffers.element.itemsize
        begin, end = (
            memory.parts[message.buffer].data.ptr + message.offset * size
            for memory, message in ((others, target), (buffers, source))
        )
        return cls(begin, end, source.length * size)
