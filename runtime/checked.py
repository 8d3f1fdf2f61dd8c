"""Known data: what each rank puts in and must get out, made from rank and position alone, so nothing has to be sent."""

from __future__ import annotations

import numpy as np

from runtime.elements import Element, narrow
from synth.collective import Collective
from synth.plan.layout import starts


def counts_for(
    collective: Collective,
    size: int,
    bytes: int,
    itemsize: int,
    *,
    matrix: np.ndarray | None = None,
    pairs: tuple[tuple[int, int], ...] = (),
) -> np.ndarray:
    """Element counts of a collective at a size, in the shape that :mod:`synth.plan.layout` describes.

    Args:
        collective: which.
        size: ranks.
        bytes: as the collective defines it.
        itemsize: bytes of one element.
        matrix: [size, size] bytes per pair, for alltoall.
        pairs: for sendrecv.
    """
    match collective:
        case Collective.ALLTOALL:
            if matrix is not None:
                return (matrix // itemsize).astype(np.int64)
            return np.full((size, size), bytes // size // itemsize, dtype=np.int64)
        case Collective.SENDRECV:
            counts = np.zeros((size, size), dtype=np.int64)
            counts[tuple(np.array(pairs).T)] = bytes // itemsize
            return counts
        case Collective.ALLGATHER | Collective.REDUCE_SCATTER:
            return np.full(size, bytes // size // itemsize, dtype=np.int64)
        case _:
            return np.asarray(bytes // itemsize)


def given(collective: Collective, counts: np.ndarray, rank: int, root: int, element: Element) -> np.ndarray:
    """This rank's input, as bytes."""
    match collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            count = int(counts[rank].sum())
        case Collective.ALLGATHER:
            count = int(counts[rank])
        case Collective.BROADCAST:
            count = int(counts) if rank == root else 0
        case _:
            count = int(counts.sum())
    return _addable(rank, count, element) if collective.reduces else _moved(rank, 0, count * element.itemsize)


def wanted(collective: Collective, counts: np.ndarray, rank: int, root: int, element: Element, size: int) -> np.ndarray:
    """What this rank must end with, as bytes."""
    width = element.itemsize
    match collective:
        case Collective.ALLTOALL | Collective.SENDRECV:
            begins = [starts(counts[origin]) * width for origin in range(size)]
            parts = [_moved(origin, int(b[rank]), int(b[rank + 1])) for origin, b in enumerate(begins)]
            return np.concatenate(parts)
        case Collective.ALLGATHER:
            return np.concatenate([_moved(origin, 0, int(counts[origin]) * width) for origin in range(size)])
        case Collective.BROADCAST:
            return _moved(root, 0, int(counts) * width)
        case _:
            count = int(counts.sum())
            numbers = sum((_numbers(origin, count) for origin in range(1, size)), start=_numbers(0, count))
            whole = narrow(numbers.astype(element.sums_in), element)
            if collective is Collective.REDUCE_SCATTER:
                part = starts(counts) * width
                return whole[part[rank] : part[rank + 1]]
            return whole if collective is Collective.ALLREDUCE or rank == root else whole[:0]


def _moved(rank: int, begin: int, end: int) -> np.ndarray:
    """Bytes ``begin`` to ``end`` of a sequence that differs between ranks and repeats late."""
    place = np.arange(begin, end, dtype=np.uint32)
    mixed = (place + np.uint32(rank * 977 + 1)) * np.uint32(2654435761)
    return (mixed >> np.uint32(21)).astype(np.uint8)


def _numbers(rank: int, count: int) -> np.ndarray:
    """Small integers, 0 to 3, whose sums over 64 ranks are exact in every type that can be added."""
    place = np.arange(count, dtype=np.uint32)
    return (((place + np.uint32(rank * 31)) * np.uint32(2654435761)) >> np.uint32(30)).astype(np.int32)


def _addable(rank: int, count: int, element: Element) -> np.ndarray:
    return narrow(_numbers(rank, count).astype(element.sums_in), element)
