"""From timings to a link's alpha and beta, with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Fit:
    """Time = alpha + bytes / rate.

    Attributes:
        alpha_ns: latency of an empty message.
        alpha_spread_ns: half the distance between the quartiles over the repetitions.
        bytes_per_s: rate.
        rate_spread: the same for the rate, in bytes per second.
        samples: how many timings went in.
    """

    alpha_ns: float
    alpha_spread_ns: float
    bytes_per_s: float
    rate_spread: float
    samples: int


def fit(timings: Mapping[int, Sequence[float]]) -> Fit:
    """Fit one line per repetition through all sizes and take medians, so that one disturbed run does no harm.

    Args:
        timings: bytes -> seconds of each repetition; at least one size, equally many repetitions.

    Returns:
        The fit; with one size only, alpha is 0 and the rate is bytes over time.
    """
    sizes = np.array(sorted(timings), dtype=np.float64)
    seconds = np.array([timings[int(size)] for size in sizes], dtype=np.float64)  # [sizes, repetitions]
    if len(sizes) == 1:
        rates = sizes[0] / np.maximum(seconds[0], 1e-12)
        return Fit(0.0, 0.0, float(np.median(rates)), _spread(rates), seconds.size)
    # weights 1/t make the relative error count, so that the small sizes decide alpha
    weights = 1.0 / np.maximum(seconds, 1e-12)
    alphas, betas = [], []
    for column in range(seconds.shape[1]):
        rows = np.stack([np.ones_like(sizes), sizes], axis=1) * weights[:, column, None]
        (alpha, beta), *_ = np.linalg.lstsq(rows, seconds[:, column] * weights[:, column], rcond=None)
        alphas.append(max(float(alpha), 0.0))
        # a slope of nothing means that the sizes were too small to see the rate
        betas.append(max(float(beta), float(seconds[-1, column] / sizes[-1]) * 0.1, 1e-15))
    rates = 1.0 / np.array(betas)
    return Fit(
        alpha_ns=float(np.median(alphas)) * 1e9,
        alpha_spread_ns=_spread(np.array(alphas)) * 1e9,
        bytes_per_s=float(np.median(rates)),
        rate_spread=_spread(rates),
        samples=seconds.size,
    )


def _spread(values: np.ndarray) -> float:
    low, high = np.percentile(values, [25, 75])
    return float(high - low) / 2
