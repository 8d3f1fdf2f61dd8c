"""The loop of column generation: solve, price, add what is new, until time and bound meet or nothing new is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.backend import Cancel, Stopped

SMOOTHING = 0.7
"""Weight of the best prices so far in the prices that columns are sought for; less when nothing new is found."""


def descend(
    solve: Callable[[], tuple[float, np.ndarray]],
    price: Callable[[np.ndarray], tuple[float, int]],
    *,
    exact: bool,
    bound: float,
    prices: np.ndarray,
    tolerance: float,
    patience: int,
    stop: Cancel,
    tell: Callable[[float, float], None] = lambda seconds, bound: None,
) -> tuple[float, np.ndarray]:
    """Run it on a program that the callers keep.

    Args:
        solve: solves the program; gives its seconds and [links] prices that sum to 1.
        price: adds columns that are cheap at some prices; gives the seconds that those prove, and how many were new.
        exact: the columns are the cheapest, so that prices prove something; they are smoothed towards those that prove
            most then, and otherwise towards those of before.
        bound: seconds already proven.
        prices: [links] what proves them.
        tolerance: relative distance of time and bound at which to stop.
        patience: steps in a row that may bring less than ``tolerance`` where nothing is proven.
        stop: asked after every step whether to stop with what there is.
        tell: told the seconds and the bound after every program.

    Returns:
        the best bound, and the [links] prices that prove it.

    Source: Wentges, "Weighted Dantzig-Wolfe decomposition", 1997, for the smoothing.
    """
    seconds, smoothing, idle, centre = float("inf"), SMOOTHING, 0, prices
    try:
        while True:
            now, duals = solve()
            idle = 0 if now < seconds * (1 - tolerance / 2) else idle + 1
            seconds = now
            tell(seconds, bound)
            if seconds <= bound * (1 + tolerance) or stop() or (not exact and idle > patience):
                break
            tried = smoothing * centre + (1 - smoothing) * duals
            proven, added = price(tried)
            if exact and proven > bound:
                bound, prices = proven, tried
            centre = prices if exact else tried
            if not added:
                if smoothing == 0.0:
                    break
                smoothing = 0.0
            else:
                smoothing = SMOOTHING
            if seconds <= bound * (1 + tolerance):
                break
    except Stopped:
        pass
    return bound, prices
