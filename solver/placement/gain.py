"""What a new placement can be expected to gain, as a range, and whether the sample carries it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.placement.problem import Placement

DRAWS = 32
TOKENS_PER_EXPERT = 30
"""Fewer tokens per expert and layer than this are called a small sample."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much less time the busiest ranks need, summed over layers: 0.2 means 20 % faster.

    Attributes:
        low: least over resampled loads.
        expected: with the loads as given.
        high: most over resampled loads.
        warnings: why it should not be trusted, if so.
    """

    low: float
    expected: float
    high: float
    warnings: tuple[str, ...]


def gain(before: Placement, after: Placement, loads: np.ndarray, seed: int = 0) -> Gain:
    """Compare two placements under the given loads and under Poisson resamples of them.

    Loads are taken as token counts, so a count of n stands for n plus or minus its square root. The figure is about
    the experts' own time and traffic; what the rest of a step takes dilutes it.
    """
    expected = _speedup(before, after, loads)
    if (loads != np.floor(loads)).any():
        return Gain(expected, expected, expected, ("loads are not whole counts, so the gain has no sampling range",))
    rng = np.random.default_rng(seed)
    draws = [_speedup(before, after, rng.poisson(loads).astype(np.float64)) for _ in range(DRAWS)]
    low, high = min([*draws, expected]), max([*draws, expected])
    warnings = []
    fewest = float(loads.sum(axis=1).min()) / loads.shape[1]
    if fewest < TOKENS_PER_EXPERT:
        warnings.append(
            f"the sample is small: {fewest:.1f} tokens per expert in its emptiest layer; "
            f"record at least {TOKENS_PER_EXPERT} before acting on it"
        )
    if low <= 0 < expected:
        warnings.append("the gain is within the sampling error of the loads")
    return Gain(low, expected, high, tuple(warnings))


def _speedup(before: Placement, after: Placement, loads: np.ndarray) -> float:
    highest = [float(p.rank_loads(loads).max(axis=1).sum()) for p in (before, after)]
    return highest[0] / highest[1] - 1 if highest[1] > 0 else 0.0
