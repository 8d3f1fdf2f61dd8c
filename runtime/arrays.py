"""What callers pass: numpy arrays, CuPy arrays and torch tensors, seen as flat bytes where they lie."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from runtime.elements import Element, element_of
from synth.errors import InvalidArgument


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """One array, flat.

    Attributes:
        data: its bytes, one-dimensional, on the host (numpy) or on the device (CuPy); not copied.
        element: type of its elements.
        shape: as the caller sees it.
        given: what the caller passed.
    """

    data: Any
    element: Element
    shape: tuple[int, ...]
    given: Any

    @property
    def rows(self) -> int:
        """Length of the first axis."""
        return self.shape[0]

    @property
    def row(self) -> int:
        """Elements in one row of the first axis."""
        return int(np.prod(self.shape[1:], dtype=np.int64))

    def empty(self, shape: tuple[int, ...]) -> Array:
        """A new array of the same kind, type and device."""
        if isinstance(self.given, np.ndarray):
            return flat(np.empty(shape, dtype=self.given.dtype))
        if (torch := sys.modules.get("torch")) is not None and isinstance(self.given, torch.Tensor):
            return flat(torch.empty(shape, dtype=self.given.dtype, device=self.given.device))
        return flat(sys.modules["cupy"].empty(shape, dtype=self.given.dtype))


def flat(array: Any, *, name: str = "array") -> Array:
    """See an array as flat bytes.

    Raises:
        InvalidArgument: it is no array, not contiguous, or its elements have no fixed size.
    """
    if isinstance(array, np.ndarray):
        element = element_of(array.dtype)
        if not array.flags.c_contiguous:
            raise _scattered(name)
        return Array(array.reshape(-1).view(np.uint8), element, _shape(array, name), array)
    if (torch := sys.modules.get("torch")) is not None and isinstance(array, torch.Tensor):
        element = element_of(array.dtype)
        if not array.is_contiguous():
            raise _scattered(name)
        data = array.detach().reshape(-1).view(torch.uint8)
        if array.device.type == "cpu":
            return Array(data.numpy(), element, _shape(array, name), array)
        return Array(_device_bytes(data.data_ptr(), data.numel(), array), element, _shape(array, name), array)
    if (cupy := sys.modules.get("cupy")) is not None and isinstance(array, cupy.ndarray):
        if not array.flags.c_contiguous:
            raise _scattered(name)
        return Array(array.reshape(-1).view(np.uint8), element_of(array.dtype), _shape(array, name), array)
    raise InvalidArgument(
        f"{name}: is a {type(array).__name__}; pass a numpy array, a CuPy array or a torch tensor", subject=name
    )


def _shape(array: Any, name: str) -> tuple[int, ...]:
    if array.ndim == 0:
        raise InvalidArgument(f"{name}: has no axis; pass an array of at least one dimension", subject=name)
    return tuple(map(int, array.shape))


def _scattered(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name}: is not contiguous; pass a contiguous copy of it", subject=name)


def _device_bytes(pointer: int, size: int, owner: Any) -> Any:
    cupy: Any = import_module("cupy")

    memory = cupy.cuda.UnownedMemory(pointer, size, owner, device_id=owner.device.index)
    return cupy.ndarray(size, dtype=np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
