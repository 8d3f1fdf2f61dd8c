"""Checking the counts that callers pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.arrays import Array, flat
from synth.collective import Collective
from synth.errors import InvalidArgument


def as_counts(given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Counts as an int64 array of the wanted shape.

    Raises:
        InvalidArgument: another shape, no integers, or a negative count.
    """
    if isinstance(given, np.ndarray):
        counts = given
    else:
        counts = np.asarray(given.tolist() if hasattr(given, "tolist") else given)
    if counts.shape != shape:
        raise InvalidArgument(f"counts: must have shape {shape}, not {counts.shape}", subject="counts")
    if counts.dtype.kind not in "iu" and counts.size:
        raise InvalidArgument(f"counts: must be integers, not {counts.dtype}", subject="counts")
    if counts.size and counts.min() < 0:
        raise InvalidArgument(f"counts: {counts.min()} is negative", subject="counts")
    return counts.astype(np.int64)


def even_rows(rows: int, parts: int, name: str) -> np.ndarray:
    """``rows`` in equal parts.

    Raises:
        InvalidArgument: they do not divide.
    """
    if parts == 0 and rows == 0:
        return np.zeros(0, dtype=np.int64)
    if parts == 0 or rows % parts:
        raise InvalidArgument(
            f"{name}: {rows} rows do not divide into {parts} equal parts; give the counts of each", subject=name
        )
    return np.full(parts, rows // parts, dtype=np.int64)


def input_elements(collective: Collective, counts: np.ndarray, ranks: int) -> int:
    """The size of an operation as plans count it, in elements; for uneven counts the largest input of any rank."""
    match collective:
        case Collective.ALLTOALL:
            return int(counts.sum(axis=1).max())
        case Collective.SENDRECV:
            return int(counts.max())
        case Collective.ALLGATHER | Collective.REDUCE_SCATTER:
            return int(counts.max()) * ranks
        case _:
            return int(counts)


def stand_in() -> Array:
    """A stand-in for an array that could not be used."""
    return flat(np.empty(0, dtype=np.uint8))
