"""Pricing: the cheapest route of every commodity under given link prices."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from solver.bound.columns import Columns
from solver.bound.problem import Problem, Shape
from synth.collective.cheapest import min_arborescences


class Pricer(Protocol):
    """Finds one good route for each commodity."""

    def __call__(self, problem: Problem, prices: np.ndarray) -> tuple[Columns, np.ndarray]:
        """Routes and their price per byte.

        Args:
            problem: whose ``moving`` commodities are asked for.
            prices: [rows] price of one second of each row.

        Returns:
            (one column per moving commodity in order, [moving] price of one byte along it).
        """
        ...


def cheapest(problem: Problem, prices: np.ndarray) -> tuple[Columns, np.ndarray]:
    """The cheapest route of every moving commodity: exact, so that the prices prove a bound."""
    commodities, moving = problem.commodities, problem.moving
    weights = problem.weights(prices)
    shapes = commodities.shape[moving]
    parts, costs = [], []
    for shape in Shape:
        mine = moving[shapes == shape]
        if not len(mine):
            continue
        root = commodities.root[mine]
        if shape is Shape.PATH:
            distance, onward = shortest_paths(weights)
            parts.append(Columns.of_paths(mine, root, commodities.end[mine], onward))
            costs.append(distance[root, commodities.end[mine]])
        else:
            inward = shape is Shape.IN_TREE
            cost, parents = min_arborescences(weights.T if inward else weights, root)
            parts.append(Columns.of_trees(mine, parents, inward=inward))
            costs.append(cost)
    return Columns.join(parts), np.concatenate(costs)


def shortest_paths(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All shortest paths, those of fewest hops among equally long ones up to rounding (Floyd, 1962).

    Returns:
        ([ranks, ranks] lengths, [ranks, ranks] next rank on the way from row to column).
    """
    ranks = len(weights)
    finite = weights[np.isfinite(weights)]
    nudge = 1e-9 * max(float(finite.max(initial=0.0)), 1e-300)  # so that a detour at the same price loses
    distance = weights + nudge
    np.fill_diagonal(distance, 0.0)
    onward = np.tile(np.arange(ranks), (ranks, 1))
    for middle in range(ranks):
        through = distance[:, middle, None] + distance[None, middle, :]
        better = through < distance
        np.copyto(distance, through, where=better)
        np.copyto(onward, onward[:, middle, None], where=better)
    lengths = distance.copy()
    return lengths, onward
