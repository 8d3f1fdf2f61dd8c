"""Placing experts: load first, then traffic between nodes, then moves from the previous placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.placement.balance import balance
from solver.placement.bound import rank_load_bound
from solver.placement.eplb import eplb
from solver.placement.exact import optimum, variables
from solver.placement.locality import crossings, localise
from solver.placement.problem import Placement, Shape, check_placement
from solver.placement.relabel import moves, relabel
from solver.placement.repair import highest, repairs
from solver.placement.traffic import Traffic
from synth.errors import InputError, LimitError

SLACK = 0.005
"""Highest rank loads this close together, relatively, count as equal when traffic or moves can be saved."""
MOST_CELLS = 100_000_000
"""Layers x experts x ranks of one call."""
MOST_EXACT = 600
"""Integer variables, over all layers, up to which a placement is solved exactly."""
MIN_GAIN = 0.02
"""A layer whose highest rank load (or traffic) would fall by less than this keeps its previous placement."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """A placement and how it came about, one entry per layer.

    Attributes:
        placement: the maps.
        bound: [layers] no placement has a highest rank load below this.
        baseline: [layers] EPLB's highest rank load.
        moves: [layers] experts a rank must fetch; zeros without a previous placement.
        kept: [layers] whether the previous placement stays, because the gain is under ``min_gain``.
        min_gain: the threshold.
    """

    placement: Placement
    bound: np.ndarray
    baseline: np.ndarray
    moves: np.ndarray
    kept: np.ndarray
    min_gain: float


def place(
    loads: np.ndarray,
    shape: Shape,
    *,
    traffic: Traffic | None = None,
    previous: np.ndarray | None = None,
    slack: float = SLACK,
    min_gain: float = MIN_GAIN,
) -> Placed:
    """Place the experts of all layers.

    Args:
        loads: [layers, experts] tokens per expert, at least 0.
        shape: sizes.
        traffic: co-activation, tokens per source rank and prices, where known.
        previous: [layers, slots] the placement in force.
        slack: see ``SLACK``; a layer never ends above EPLB's highest rank load because of it.
        min_gain: see ``MIN_GAIN``.

    Raises:
        InputError: tables do not fit the shape or hold unusable numbers.
    """
    loads = check_loads(loads, shape)
    traffic = traffic or Traffic()
    traffic.check(shape, len(loads))
    if previous is not None:
        check_placement(shape, previous, len(loads))
    baseline = highest(eplb(loads, shape.slots, shape.groups, shape.nodes, shape.ranks), loads, shape)
    balanced = balance(loads, shape)
    bound = rank_load_bound(loads, shape)
    _solve_small(balanced, bound, loads, shape)
    best = highest(balanced, loads, shape)
    limit = np.maximum(best, np.minimum(best * (1 + slack), baseline))
    fresh = relabel(localise(balanced, loads, shape, traffic, limit), loads, shape, traffic, previous)
    kept = np.zeros(len(loads), dtype=bool)
    chosen = fresh
    if previous is not None:
        chosen, kept = _from_previous(previous, fresh, balanced, loads, shape, traffic, limit, best, min_gain)
    return Placed(
        placement=Placement(shape, chosen),
        bound=bound,
        baseline=baseline,
        moves=np.zeros(len(loads), dtype=np.int64) if previous is None else moves(chosen, previous, shape),
        kept=kept,
        min_gain=min_gain,
    )


def _solve_small(balanced: np.ndarray, bound: np.ndarray, loads: np.ndarray, shape: Shape) -> None:
    """Where the problem is tiny, make bound and map of each layer exact, in place."""
    if variables(shape) * len(loads) > MOST_EXACT:
        return
    for layer, row in enumerate(loads):
        best = highest(balanced[layer : layer + 1], loads[layer : layer + 1], shape)[0]
        if best <= bound[layer] * (1 + 1e-9):
            continue
        found = optimum(row, shape)
        bound[layer] = max(bound[layer], min(found.bound, best))
        if found.highest < best * (1 - 1e-9):
            balanced[layer] = found.phy2log


def check_loads(loads: np.ndarray, shape: Shape) -> np.ndarray:
    """The loads as [layers, experts] float64.

    Raises:
        InputError: they are of another size, negative or not finite.
    """
    if loads.ndim != 2 or loads.shape[1] != shape.experts or not len(loads):
        raise InputError(
            f"loads: are {' x '.join(map(str, loads.shape))}; must be layers x {shape.experts} experts",
            subject="loads",
        )
    if loads.size * shape.ranks > MOST_CELLS:
        raise LimitError(
            f"loads: {len(loads)} layers x {shape.experts} experts x {shape.ranks} ranks are more than {MOST_CELLS} "
            "cells; place fewer layers at a time",
            subject="loads",
        )
    loads = loads.astype(np.float64)
    if not np.isfinite(loads).all() or (loads < 0).any() or (loads > 1e15).any():
        raise InputError("loads: hold a negative or unusable number; must be counts from 0 to 1e15", subject="loads")
    return loads


def _from_previous(
    previous: np.ndarray,
    fresh: np.ndarray,
    balanced: np.ndarray,
    loads: np.ndarray,
    shape: Shape,
    traffic: Traffic,
    limit: np.ndarray,
    best: np.ndarray,
    min_gain: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The candidate with the fewest moves in each layer, and which layers keep what they have."""
    chosen = fresh.copy()
    fewest = moves(fresh, previous, shape)
    cost = crossings(fresh, loads, shape, traffic) if traffic.known else np.zeros(len(loads))
    near = cost * (1 + min_gain) + 1e-9
    for candidate in repairs(previous, balanced, loads, shape, limit):
        made = localise(candidate, loads, shape, traffic, limit)
        need = moves(made, previous, shape)
        better = (highest(made, loads, shape) <= limit) & (need < fewest)
        if traffic.known:
            better &= crossings(made, loads, shape, traffic) <= near
        chosen[better], fewest[better] = made[better], need[better]
    kept = highest(previous, loads, shape) <= best * (1 + min_gain)
    if traffic.known:
        kept &= crossings(previous, loads, shape, traffic) <= near
    chosen[kept] = previous[kept]
    return chosen, kept
