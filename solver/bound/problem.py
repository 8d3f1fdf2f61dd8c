"""The linear program over routes, as numbers: commodities to move, rows of links, and what each hop costs them.

A **commodity** is a block together with the shape of the routes that may carry it: a path, an out-tree or an
in-tree. An allreduce has two per root, an in-tree and an out-tree, which the program keeps equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
from scipy import sparse

from solver.stabiliser import find_stabiliser
from solver.symmetry import Group, find_group
from synth.collective import Collective, Demand
from synth.topology import Routes

NEGLIGIBLE = 1e-9
"""Blocks smaller than this part of the largest do not take part in the program; they get a cheapest route after it."""


class Shape(IntEnum):
    """What a route of a commodity looks like."""

    PATH = 0
    OUT_TREE = 1
    IN_TREE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Commodities:
    """Columns of equal length.

    Attributes:
        shape: [commodities] a :class:`Shape`.
        root: [commodities] where the path starts, or the root of the tree.
        end: [commodities] where the path ends; -1 for trees.
        size: [commodities] bytes; with those of its images where the problem has symmetries.
        block: [commodities] position in ``demand.blocks``.
    """

    shape: np.ndarray
    root: np.ndarray
    end: np.ndarray
    size: np.ndarray
    block: np.ndarray

    def __len__(self) -> int:
        return len(self.root)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What to route, over what.

    Attributes:
        routes: among the ranks, helpers last.
        demand: what must be delivered.
        commodities: see :class:`Commodities`.
        paired: whether the commodities are the in-trees and then the out-trees of the roots of an allreduce.
        group: symmetries; commodities are then one per orbit, with the bytes of all of it (of an allreduce, whose one
            buffer is shared out among the images, with the bytes of that), and rows are orbits of links.
    """

    routes: Routes
    demand: Demand
    commodities: Commodities
    paired: bool
    group: Group | None = None

    @classmethod
    def of(cls, routes: Routes, demand: Demand, *, symmetric: bool = False) -> Problem:
        """The program of one demand.

        Args:
            routes: among the ranks, helpers last.
            demand: what must be delivered.
            symmetric: use the symmetries of the machine, where there are any.

        Raises:
            TopologyError: some rank cannot reach another.
        """
        routes.require_connected()
        blocks = demand.blocks
        count = len(blocks.size)
        group = _symmetries(routes, demand) if symmetric else None
        ranks = np.arange(routes.ranks) if group is None else group.representatives
        match demand.collective:
            case Collective.ALLTOALL | Collective.SENDRECV:
                shape, root, end, block = np.zeros(count), blocks.origin, blocks.target, np.arange(count)
            case Collective.ALLGATHER | Collective.BROADCAST:
                shape, root, end = np.full(count, Shape.OUT_TREE), blocks.origin, blocks.target
                block = np.arange(count)
            case Collective.REDUCE_SCATTER | Collective.REDUCE:
                shape, root, end = np.full(count, Shape.IN_TREE), blocks.target, blocks.origin
                block = np.arange(count)
            case Collective.ALLREDUCE:
                shape = np.repeat([Shape.IN_TREE, Shape.OUT_TREE], len(ranks))
                root, end, block = np.tile(ranks, 2), np.full(2 * len(ranks), -1), np.zeros(2 * len(ranks), dtype=int)
        commodities = Commodities(shape.astype(np.int64), root, end, blocks.size[block], block)
        if group is not None:
            commodities = _one_per_orbit(commodities, group, shared=demand.collective is Collective.ALLREDUCE)
        return cls(
            routes=routes,
            demand=demand,
            commodities=commodities,
            paired=demand.collective is Collective.ALLREDUCE,
            group=group,
        )

    @cached_property
    def crossing(self) -> sparse.csr_matrix:
        """[pairs, rows] seconds a byte, shared out among the pair's route and its images, keeps each link busy."""
        routes, group = self.routes, self.group
        values = 1.0 / routes.topology.bytes_per_s[routes.links]
        shape = (routes.ranks**2, len(routes.topology.links))
        crossing = sparse.csr_matrix((values, routes.links, routes.starts), shape=shape)
        if group is None:
            return crossing
        orbit = group.link_orbit
        rows = sparse.csr_matrix(
            (1.0 / np.bincount(orbit)[orbit], (np.arange(len(orbit)), orbit)), shape=(len(orbit), orbit.max() + 1)
        )
        return sparse.csr_matrix(crossing @ rows)

    @property
    def listed(self) -> Group | None:
        """The symmetries that plans may state, so that they list one representative per orbit."""
        return self.group if self.group is not None and self.group.free else None

    @cached_property
    def plain(self) -> Problem:
        """The same problem without symmetries."""
        return self if self.group is None else Problem.of(self.routes, self.demand)

    @cached_property
    def hops(self) -> np.ndarray:
        """[ranks, ranks] fewest hops from row to column."""
        return hop_distance(self.routes.exists)

    def link_prices(self, prices: np.ndarray) -> np.ndarray:
        """[links] price of one second of each link, from the prices of rows."""
        if self.group is None:
            return prices
        orbit = self.group.link_orbit
        return np.asarray((prices / np.bincount(orbit))[orbit])

    @cached_property
    def moving(self) -> np.ndarray:
        """Positions of the commodities large enough to matter."""
        size = self.commodities.size
        return np.flatnonzero(size > NEGLIGIBLE * size.max(initial=0.0))

    def weights(self, prices: np.ndarray) -> np.ndarray:
        """[ranks, ranks] price of one byte over each hop, where a second of link e costs ``prices[e]``."""
        ranks = self.routes.ranks
        weights = np.where(self.routes.exists, (self.crossing @ prices).reshape(ranks, ranks), np.inf)
        np.fill_diagonal(weights, 0.0)
        return weights


def _symmetries(routes: Routes, demand: Demand) -> Group | None:
    """What machine and demand have."""
    if demand.root is None:
        return find_group(routes, demand)
    return find_stabiliser(routes, demand.root) if routes.ranks == demand.ranks else None


def _one_per_orbit(commodities: Commodities, group: Group, *, shared: bool) -> Commodities:
    """One commodity of each orbit, with the bytes of all of it unless the images share one buffer."""
    root, end = commodities.root, commodities.end
    whole = (end < 0) | group.fixed[end]  # the end tells no two images apart
    kept = np.isin(root, group.representatives) & (~group.fixed[root] | whole | np.isin(end, group.representatives))
    images = 1 if shared else np.where(group.fixed[root] & whole, 1, group.order)
    sized = replace(commodities, size=commodities.size * images)
    return Commodities(*(getattr(sized, name)[kept] for name in Commodities.__slots__))


def hop_distance(exists: np.ndarray) -> np.ndarray:
    """[ranks, ranks] fewest hops from row to column."""
    ranks = len(exists)
    step = exists.astype(np.float32)
    reach = np.eye(ranks, dtype=bool)
    distance = np.where(reach, 0, ranks)
    for hops in range(1, ranks):
        wider = reach | ((reach.astype(np.float32) @ step) > 0)
        if (wider == reach).all():
            break
        distance[wider & ~reach] = hops
        reach = wider
    return np.asarray(distance)
