"""From fractional shares to whole ones over a common denominator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.bound import Columns, Problem

DENOMINATORS = (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
    1024, 1536, 2048, 3072, 4096, 6144, 8192,
)  # fmt: skip
FINE = 1024
"""Where images share out one buffer, each of their parts is cut no finer than this unless all are few."""
SLACK = 2e-3
"""A smaller denominator is taken when it costs at most this part of the time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """Routes with whole shares.

    Attributes:
        columns: routes with a share of at least 1.
        shares: [columns] in units of 1 / denominator; they sum to it for each group.
        denominator: the unit.
        kept: [columns] which of the given columns these are.
    """

    columns: Columns
    shares: np.ndarray
    denominator: int
    kept: np.ndarray


def whole(
    problem: Problem,
    columns: Columns,
    shares: np.ndarray,
    group: np.ndarray,
    *,
    seconds: Callable[[np.ndarray], float] | None = None,
) -> Whole:
    """Round shares so that no group's total changes.

    Args:
        problem: prices the result.
        columns: routes.
        shares: [columns] fractions that sum to 1 for each group.
        group: [columns] label of what must stay whole together (a commodity).
        seconds: what the shares cost; default: the time of the busiest link.
    """
    usage = columns.usage(problem)
    shared = problem.listed.order if problem.listed is not None and problem.paired else 1
    most = max(FINE, DENOMINATORS[-1] // shared)
    if seconds is None:

        def seconds(parts: np.ndarray) -> float:
            return float((usage.T @ parts).max(initial=0.0))

    best: tuple[float, int, np.ndarray] | None = None
    for denominator in (d for d in DENOMINATORS if d <= most):
        units = largest_remainder(shares, group, denominator)
        cost = seconds(units / denominator)
        if best is None or cost < best[0] * (1 - SLACK):
            best = (cost, denominator, units)
    assert best is not None
    _, denominator, units = best
    used = np.flatnonzero(units)
    return Whole(columns=columns.take(used), shares=units[used], denominator=denominator, kept=used)


def largest_remainder(shares: np.ndarray, group: np.ndarray, denominator: int) -> np.ndarray:
    """Whole units per column that sum to the denominator in each group (Hamilton's method)."""
    exact = shares * denominator
    units = np.floor(exact + 1e-9).astype(np.int64)
    order = np.lexsort((np.arange(len(shares)), -(exact - units), group))
    sorted_group = group[order]
    first = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1]]) if len(group) else np.zeros(0, dtype=int)
    position = np.arange(len(group)) - np.repeat(first, np.diff(np.r_[first, len(group)]))
    label, which = np.unique(group, return_inverse=True)
    missing = denominator - np.bincount(which, units, minlength=len(label)).astype(np.int64)
    units[order] += position < missing[which[order]]
    return units
