"""Routes whose hops have rounds, and the cheapest of them when what a hop costs depends on its round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from solver.bound import Columns, Problem, Shape
from solver.bound.forest import guessed, improved
from solver.bound.pricing import hop_limited_paths, of_each_shape, pruned
from solver.bound.shallow import first_of_each

STARTS = 3
"""The search for a tree starts from at least so many of those in use, besides its own guesses, .."""
MANY = 12
""".. and from about so many for all commodities."""


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Routes with rounds.

    Attributes:
        columns: routes.
        rounds: [hops] round of each hop.
    """

    columns: Columns
    rounds: np.ndarray

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def last(self) -> np.ndarray:
        """[routes] the last round of each."""
        return np.asarray(np.maximum.reduceat(self.rounds, self.columns.starts[:-1]) if len(self) else self.rounds)

    def take(self, rows: np.ndarray) -> Timed:
        """Some of the routes, in the given order."""
        columns = self.columns
        return Timed(columns.take(rows), Columns(columns.commodity, columns.starts, self.rounds).take(rows).hops)

    @classmethod
    def join(cls, parts: list[Timed]) -> Timed:
        """All routes of several sets, one after another."""
        return cls(
            Columns.join([part.columns for part in parts]),
            np.concatenate([part.rounds for part in parts] or [np.zeros(0, dtype=np.int64)]),
        )

    def keys(self) -> list[tuple[bytes, bytes]]:
        """Something equal for equal routes in equal rounds and different for different ones."""
        columns = self.columns
        clock = Columns(columns.commodity, columns.starts, self.rounds).keys()
        return list(zip(columns.keys(), clock, strict=True))

    def usage(self, problem: Problem, depth: int) -> list[sparse.csr_matrix]:
        """For each round, [routes, rows] seconds each row is busy when the whole commodity takes the route."""
        columns = self.columns
        size = np.repeat(problem.commodities.size[columns.commodity], np.diff(columns.starts))
        shape = (len(columns), problem.routes.ranks**2)
        staged = []
        for round in range(depth):
            hops = sparse.csr_matrix((size * (self.rounds == round), columns.hops, columns.starts), shape=shape)
            hops.eliminate_zeros()
            staged.append(sparse.csr_matrix(hops @ problem.crossing))
        return staged


class Pricer:
    """Finds the cheapest routes under prices by round.

    Args:
        problem: what to route.
        depth: rounds there are; the in-trees of an allreduce take the first half of them and the out-trees the second.
    """

    def __init__(self, problem: Problem, depth: int) -> None:
        self.problem, self.depth = problem, depth

    def __call__(self, prices: np.ndarray, used: Timed) -> Timed:
        """Good routes for every moving commodity, several for some; paths are the cheapest there are.

        Args:
            prices: [depth, rows] price of one second of each row in each round.
            used: routes to improve on, the most important first.
        """
        problem = self.problem
        commodities = problem.commodities
        weights = np.stack([problem.weights(row) for row in prices])
        found: list[Timed] = []
        for shape, mine in of_each_shape(problem):
            if shape is Shape.PATH:
                columns, rounds, _ = hop_limited_paths(weights, mine, commodities.root[mine], commodities.end[mine])
                found.append(Timed(columns, rounds))
            else:
                found.append(self._trees(shape, mine, weights, used))
        return Timed.join(found)

    def _trees(self, shape: Shape, mine: np.ndarray, weights: np.ndarray, used: Timed) -> Timed:
        problem = self.problem
        inward = shape is Shape.IN_TREE
        first, depth = self._span(shape)
        weights = weights[first : first + depth]
        if inward:  # an in-tree is an out-tree that runs backwards
            weights = weights[::-1].swapaxes(1, 2)
        hops = problem.hops.T if inward else problem.hops
        roots = problem.commodities.root[mine]
        known, owner = self._levels(shape, mine, used)
        levels = np.concatenate([guessed(weights[None], roots, depth, hops), known])
        whose = np.concatenate([np.arange(len(mine)), owner])
        parents, level, _ = improved(weights[None], roots[whose], levels, depth)
        if problem.demand.ranks < problem.routes.ranks:
            parents = pruned(parents, problem.demand.ranks)
        row, child = np.nonzero(parents >= 0)
        rounds = level[row, child] - 1
        columns = Columns.of_trees(mine[whose], parents, inward=inward)
        return Timed(columns, first + (depth - 1 - rounds if inward else rounds))

    def _span(self, shape: Shape) -> tuple[int, int]:
        """(first round, rounds) that trees of a shape may use."""
        if not self.problem.paired:
            return 0, self.depth
        half = self.depth // 2
        return (0, half) if shape is Shape.IN_TREE else (half, half)

    def _levels(self, shape: Shape, mine: np.ndarray, used: Timed) -> tuple[np.ndarray, np.ndarray]:
        """([trees, ranks] levels of the first trees of each commodity among those used, [trees] position in mine)."""
        problem, columns = self.problem, used.columns
        ranks = problem.routes.ranks
        position = np.full(len(problem.commodities), -1)
        position[mine] = np.arange(len(mine))
        rows = first_of_each(columns.commodity, mine, max(STARTS, MANY // len(mine)))
        owner = position[columns.commodity[rows]]
        kept = used.take(rows)
        first, depth = self._span(shape)
        level = np.zeros((len(rows), ranks), dtype=np.int64)
        row = np.repeat(np.arange(len(rows)), np.diff(kept.columns.starts))
        if shape is Shape.IN_TREE:
            level[row, kept.columns.hops // ranks] = first + depth - kept.rounds
        else:
            level[row, kept.columns.hops % ranks] = kept.rounds - first + 1
        if problem.demand.ranks < ranks:  # helpers outside a tree wait at its leaves
            outside = (level == 0) & (np.arange(ranks) != problem.commodities.root[mine[owner]][:, None])
            level[outside] = depth
        return level, owner
