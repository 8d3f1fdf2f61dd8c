"""Memory that is registered with NCCL, so that it can move data without a copy through its own buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from runtime.communicators.library import Library

REGISTER = "SYNTH_REGISTER"
"""``on``: scratch is memory of NCCL's own, registered with it. Default off: its gain is not measured."""


class Registered:
    """What is registered with a communicator and its parts.

    NCCL uses a registration only where both sides of a message lie in registered memory, and only memory that it
    allocated itself is safe to map into peers.

    Args:
        libraries: all communicators to register with, the one that allocates first.
        device: CUDA's number of the GPU.
    """

    def __init__(self, libraries: Callable[[], Sequence[Library]], device: int) -> None:
        self._libraries, self._device = libraries, device
        self._handles: dict[int, list[tuple[Library, int]]] = {}
        self._allocated: list[int] = []

    def add(self, array: Any) -> bool:
        """Register the memory of an array on this GPU; False where the binding cannot. Twice is once."""
        pointer, size = int(array.data.ptr), int(array.nbytes)
        if pointer not in self._handles:
            tried = [(library, library.register(pointer, size)) for library in self._libraries()]
            found = [(library, handle) for library, handle in tried if handle is not None]
            if not found:
                return False
            self._handles[pointer] = found
        return True

    def remove(self, array: Any) -> None:
        """Undo :meth:`add`; nothing happens where it did nothing."""
        for library, handle in self._handles.pop(int(array.data.ptr), ()):
            library.deregister(handle)

    def allocate(self, bytes: int) -> Any:
        """Registered memory of NCCL's own, kept until the communicator ends; plain memory where there is none."""
        cupy: Any = import_module("cupy")
        library = self._libraries()[0]
        size = 1 << max(bytes - 1, 2**21 - 1).bit_length()  # grows by doubling, since nothing is given back before
        pointer = library.allocate(size)
        if not pointer:
            return cupy.empty(bytes, dtype=np.uint8)
        self._allocated.append(pointer)
        memory = cupy.cuda.UnownedMemory(pointer, size, self, device_id=self._device)
        array = cupy.ndarray(size, dtype=np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
        self.add(array)
        return array

    def clear(self) -> None:
        """Deregister everything, before the communicators end."""
        for found in self._handles.values():
            for library, handle in found:
                library.deregister(handle)
        self._handles.clear()

    def free(self) -> None:
        """Give allocated memory back, after the communicators ended."""
        for pointer in self._allocated:
            self._libraries()[0].free(pointer)
        self._allocated.clear()
