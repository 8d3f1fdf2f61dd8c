"""Element types: what travels as bytes, and what can be added.

Every fixed-size type can be moved. Additions know the types of the table below; half types are added in float32 and
rounded once per round, so the result does not depend on how many contributions meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from synth.errors import InvalidArgument

_SUMMABLE: dict[str, type[np.generic]] = {
    "float16": np.float32,
    "bfloat16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class Reduction(StrEnum):
    """How contributions are combined."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PROD = "prod"

    @property
    def ufunc(self) -> np.ufunc:
        """The numpy function that combines two arrays."""
        return {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}[self.value]


@dataclass(frozen=True, slots=True)
class Element:
    """One element type.

    Attributes:
        name: ``float32``, ``bfloat16``, ``float8_e4m3fn``, ...
        itemsize: bytes.
    """

    name: str
    itemsize: int

    @property
    def sums_in(self) -> type[np.generic]:
        """The numpy type additions are carried out in.

        Raises:
            InvalidArgument: the type cannot be added.
        """
        if self.name not in _SUMMABLE:
            raise InvalidArgument(
                f"{self.name}: cannot be reduced; reductions know {', '.join(sorted(_SUMMABLE))}", subject=self.name
            )
        return _SUMMABLE[self.name]


@lru_cache(maxsize=256)
def element_of(dtype: Any) -> Element:
    """The element type of a numpy, CuPy or torch dtype.

    Raises:
        InvalidArgument: its elements have no fixed size.
    """
    if isinstance(dtype, np.dtype):
        if dtype.hasobject or dtype.itemsize == 0:
            raise InvalidArgument(f"dtype {dtype}: has no fixed size; only plain data can travel", subject=str(dtype))
        return Element(dtype.name, dtype.itemsize)
    name = str(dtype).removeprefix("torch.")
    return Element(_TORCH_NAMES.get(name, name), int(dtype.itemsize))


_TORCH_NAMES = {"half": "float16", "float": "float32", "double": "float64"}


def widen(raw: np.ndarray, element: Element) -> np.ndarray:
    """Bytes as numbers of the type they are added in; a copy for half types, a view for the others."""
    if element.name == "bfloat16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    values = raw.view(element.name)
    return values.astype(np.float32) if element.name == "float16" else values


def narrow(values: np.ndarray, element: Element) -> np.ndarray:
    """Numbers back as bytes, rounded to the nearest even for half types."""
    if element.name == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet = (bits >> 16) | 0x40  # keeps a NaN a NaN
        return np.where(np.isnan(values), quiet, rounded).astype(np.uint16).view(np.uint8)
    with np.errstate(over="ignore"):  # float16 overflows to infinity, as on a GPU
        return values.astype(element.name, copy=False).view(np.uint8)
