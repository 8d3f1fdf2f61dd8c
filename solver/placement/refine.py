"""Local search: swap two experts between the heaviest bin and another as long as the heaviest gets lighter."""

from __future__ import annotations

import numpy as np


def refine(
    items: np.ndarray, weights: np.ndarray, bins: int, enough: np.ndarray, *, most: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    """Improve packings row by row, all rows at once.

    Each step takes a row's heaviest bin and makes the swap with any other bin that leaves the larger of the two sums
    smallest; a row stops when no swap helps, or when its heaviest bin is down to ``enough``.

    Args:
        items: [rows, slots] what each slot holds; bin b owns slots b * slots / bins onwards.
        weights: [rows, slots] load of each slot.
        bins: how many.
        enough: [rows] load at which a row is good enough.
        most: steps.

    Returns:
        (items [rows, slots] after the swaps, highest bin load [rows]).
    """
    rows, slots = items.shape
    room = slots // bins
    held = items.reshape(rows, bins, room).copy()
    load = weights.reshape(rows, bins, room).copy()
    total = load.sum(axis=2)
    active = np.flatnonzero(total.max(axis=1) > enough)
    for _ in range(most if bins > 1 else 0):
        if not len(active):
            break
        row = np.arange(len(active))
        sums = total[active]
        heavy = sums.argmax(axis=1)
        half = (sums[row, heavy, None] - sums) / 2  # the best difference to move into each other bin
        here = load[active]
        moved = here[row, heavy][:, :, None, None] - here[:, None]  # [active, room, bins, room]
        aim = half[:, None, :, None]
        gain = (aim - np.abs(moved - aim)).reshape(len(active), -1)
        best = gain.argmax(axis=1)
        helps = gain[row, best] > 1e-9 * sums[row, heavy]
        active, best, heavy = active[helps], best[helps], heavy[helps]
        out, other, back = np.unravel_index(best, (room, bins, room))
        difference = load[active, heavy, out] - load[active, other, back]
        for table in (load, held):
            table[active, heavy, out], table[active, other, back] = (
                table[active, other, back],
                table[active, heavy, out],
            )
        total[active, heavy] -= difference
        total[active, other] += difference
        active = active[total[active].max(axis=1) > enough[active]]
    return held.reshape(rows, slots), load.sum(axis=2).max(axis=1)
