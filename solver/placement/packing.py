"""Packing items into bins of equal room, heaviest first into the lightest: many rows at once."""

from __future__ import annotations

import numpy as np


def pack(weights: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Pack each row's items into bins that hold equally many: heaviest first, into the lightest bin with room.

    Ties go to the item, and to the bin, of the smaller index. Source: Graham, 1969 (longest processing time first),
    with a limit on the number of items, as EPLB uses it.

    Args:
        weights: [rows, items] float64; ``items`` is a multiple of ``bins``.
        bins: how many.

    Returns:
        (bin [rows, items], place inside the bin [rows, items]), int64.
    """
    rows, items = weights.shape
    room = items // bins
    if room == 1:
        return np.tile(np.arange(items), (rows, 1)), np.zeros((rows, items), dtype=np.int64)
    order = np.argsort(-weights, axis=1, kind="stable")
    descending = np.take_along_axis(weights, order, axis=1)
    total = np.zeros((rows, bins))
    filled = np.zeros((rows, bins), dtype=np.int64)
    chosen = np.empty((rows, items), dtype=np.int64)
    place = np.empty((rows, items), dtype=np.int64)
    every = np.arange(rows)
    closed = np.zeros((rows, bins))
    for position in range(items):
        lightest = np.argmin(total + closed, axis=1)
        item = order[:, position]
        chosen[every, item] = lightest
        count = filled[every, lightest]
        place[every, item] = count
        total[every, lightest] += descending[:, position]
        filled[every, lightest] = count + 1
        closed[every[count + 1 == room], lightest[count + 1 == room]] = np.inf
    return chosen, place
