"""Pricing: the cheapest route of every commodity under given link prices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from solver.bound.columns import Columns
from solver.bound.problem import Problem, Shape
from solver.bound.trees import Trees
from synth.collective import by_orbit
from synth.collective.cheapest import least_tree_prices, min_arborescences
from synth.topology.kinds import Kinds


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


class Improver(Protocol):
    """Makes columns from those in use."""

    def __call__(self, problem: Problem, prices: np.ndarray, used: Columns) -> Columns:
        """Better ones, as far as it can find them.

        Args:
            problem: whose columns they are.
            prices: [rows] price of one second of each row.
            used: columns with a share above zero, the largest first.
        """
        ...


def cheapest(problem: Problem, prices: np.ndarray) -> tuple[Columns, np.ndarray]:
    """The cheapest route of every moving commodity: exact, so that the prices prove a bound."""
    if problem.kinds is not None:
        return _cheapest_by_orbit(problem, problem.kinds, problem.kind_weights(prices))
    commodities, weights = problem.commodities, problem.weights(prices)
    parts, costs = [], []
    for shape, mine in of_each_shape(problem):
        root = commodities.root[mine]
        if shape is Shape.PATH:
            found, cost = _cheapest_paths(weights, mine, root, commodities.end[mine])
            parts.append(found)
            costs.append(cost)
        else:
            inward = shape is Shape.IN_TREE
            toward = weights.T if inward else weights
            cost, parents = min_arborescences(toward, root)
            members = problem.demand.ranks
            if members < problem.routes.ranks:  # trees need not reach helpers; what is proven then is a little less
                cost, parents = least_tree_prices(toward, root, members), pruned(parents, members)
            parts.append(Columns.of_trees(mine, parents, inward=inward))
            costs.append(cost)
    return _in_order(parts, costs)


def _in_order(parts: list[Columns], costs: list[np.ndarray]) -> tuple[Columns, np.ndarray]:
    columns = Columns.join(parts)
    order = np.argsort(columns.commodity, kind="stable")
    return columns.take(order), np.concatenate(costs)[order]


def _cheapest_by_orbit(problem: Problem, kinds: Kinds, price: np.ndarray) -> tuple[Columns, np.ndarray]:
    """The same from the prices of kinds of hops, for the roots that represent an orbit."""
    commodities = problem.commodities
    parts, costs = [], []
    for shape, mine in of_each_shape(problem):
        root = commodities.root[mine]
        if shape is Shape.PATH:
            for start in np.unique(root).tolist():
                here = mine[root == start]
                distance, before = by_orbit.shortest_from(kinds, price, start)
                parts.append(Columns.of_paths_back(here, start, commodities.end[here], before))
                costs.append(distance[commodities.end[here]])
        else:
            inward = shape is Shape.IN_TREE
            contraction = by_orbit.Contraction(kinds, price, inward=inward)
            trees = Trees(contraction)
            parents = np.stack([trees.parents(start) for start in root.tolist()])
            parts.append(Columns.of_trees(mine, parents, inward=inward))
            costs.append(contraction.prices[kinds.group.orbit[root]])
    return _in_order(parts, costs)


def of_each_shape(problem: Problem) -> Iterator[tuple[Shape, np.ndarray]]:
    """(shape, positions of the moving commodities whose routes look like that), for every shape there is."""
    moving = problem.moving
    shapes = problem.commodities.shape[moving]
    for shape in Shape:
        if (shapes == shape).any():
            yield shape, moving[shapes == shape]


def pruned(parents: np.ndarray, members: int) -> np.ndarray:
    """[trees, ranks] parents without the helpers (ranks from ``members`` on) that nobody hangs from."""
    kept = parents.copy()
    ranks = parents.shape[1]
    rows = np.arange(len(parents))[:, None]
    while True:
        children = np.zeros((len(kept), ranks + 1), dtype=np.int64)
        np.add.at(children, (np.broadcast_to(rows, kept.shape), np.where(kept >= 0, kept, ranks)), 1)
        useless = (children[:, :ranks] == 0) & (kept >= 0) & (np.arange(ranks) >= members)
        if not useless.any():
            return kept
        kept[useless] = -1


def _cheapest_paths(
    weights: np.ndarray, commodity: np.ndarray, root: np.ndarray, end: np.ndarray
) -> tuple[Columns, np.ndarray]:
    """Shortest paths, from all ranks at once or, where few of them start any, from those alone."""
    ranks = len(weights)
    if len(np.unique(root)) * 8 > ranks:
        distance, onward = shortest_paths(weights)
        return Columns.of_paths(commodity, root, end, onward), distance[root, end]
    found, _, cost = hop_limited_paths(np.broadcast_to(weights, (ranks, ranks, ranks)), commodity, root, end)
    return found, cost


def hop_limited_paths(
    weights: np.ndarray, commodity: np.ndarray, root: np.ndarray, end: np.ndarray
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """Cheapest paths of limited length, by dynamic programming over rounds (Bellman, 1958; Ford, 1956).

    Args:
        weights: [rounds, ranks, ranks] price of each hop in each round; waiting is free.
        commodity: [n] labels.
        root: [n] where each path starts.
        end: [n] where it ends.

    Returns:
        (one column per path, [hops] round of each hop, [n] prices).
    """
    rounds, ranks = weights.shape[:2]
    sources, row = np.unique(root, return_inverse=True)
    best = np.full((len(sources), ranks), np.inf)
    best[np.arange(len(sources)), sources] = 0.0
    same = rounds > 1 and weights.strides[0] == 0
    via: list[np.ndarray] = []
    for round in range(rounds):
        last = np.empty((len(sources), ranks), dtype=np.int64)
        following = np.empty_like(best)
        for position in range(len(sources)):
            through = best[position, :, None] + weights[round]
            last[position] = through.argmin(axis=0)
            following[position] = through[last[position], np.arange(ranks)]
        # staying costs nothing, so that it wins against a detour at the same price
        stays = following >= best * (1 - 1e-12)
        last = np.where(stays, np.arange(ranks), last)
        following = np.where(stays, best, following)
        if same and stays.all():
            break
        via.append(last)
        best = following
    here, rows, hops, clock = end.copy(), [], [], []
    for round in reversed(range(len(via))):
        before = via[round][row, here]
        moved = np.flatnonzero(before != here)
        rows.append(moved)
        hops.append(before[moved] * ranks + here[moved])
        clock.append(np.full(len(moved), round))
        here = before
    travelled = np.concatenate(rows[::-1])
    columns = Columns.gather(commodity, travelled, np.concatenate(hops[::-1]))
    timed = Columns.gather(commodity, travelled, np.concatenate(clock[::-1]))
    return columns, timed.hops, best[row, end]


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
