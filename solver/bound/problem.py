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
from solver.symmetry import find_group
from synth.collective import Collective, Demand
from synth.errors import SolveError
from synth.topology import Routes
from synth.topology.group import Group
from synth.topology.kinds import Kinds
from synth.verifier.certificate import ONE_BY_ONE

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
            SolveError: there are too many ranks that do not look alike.
        """
        routes.require_connected()
        group = _symmetries(routes, demand) if symmetric else None
        if group is not None:
            routes = routes.under(group)
        elif routes.ranks > ONE_BY_ONE:
            raise SolveError(
                f"{demand.collective.value} among {routes.ranks} ranks of {routes.topology.name}: no symmetries were "
                f"found that make them alike, and more than {ONE_BY_ONE} cannot be looked at one by one; choose fewer"
            )
        ranks = np.arange(routes.ranks) if group is None else group.representatives
        if group is not None and demand.collective is Collective.ALLTOALL:
            blocks, number = demand.blocks_from(ranks)
        else:
            blocks = demand.blocks
            number = np.arange(len(blocks.size))
        count = len(blocks.size)
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
        commodities = Commodities(shape.astype(np.int64), root, end, blocks.size[block], number[block])
        if group is not None:
            commodities = _one_per_orbit(commodities, group, shared=demand.collective is Collective.ALLREDUCE)
        return cls(
            routes=routes,
            demand=demand,
            commodities=commodities,
            paired=demand.collective is Collective.ALLREDUCE,
            group=group,
        )

    @property
    def kinds(self) -> Kinds | None:
        """Kinds of hops, by which a large machine with symmetries is priced."""
        return self.routes.kinds

    @property
    def rows(self) -> int:
        """How many rows there are: links, or orbits of links."""
        return len(self.routes.topology.links) if self.group is None else len(self._orbit_sizes)

    @cached_property
    def crossed(self) -> np.ndarray:
        """Positions of the rows that some route crosses."""
        return np.unique((self.crossing if self.kinds is None else self.kind_crossing).indices)

    @cached_property
    def crossing(self) -> sparse.csr_matrix:
        """[pairs, rows] seconds a byte, shared out among the pair's route and its images, keeps each link busy."""
        routes, group = self.routes, self.group
        pairs = routes.ranks**2
        if self.kinds is not None:
            hop = (np.ones(pairs), self.kinds.of.ravel(), np.arange(pairs + 1))
            return sparse.csr_matrix(
                sparse.csr_matrix(hop, shape=(pairs, self.kind_crossing.shape[0])) @ self.kind_crossing
            )
        values = 1.0 / routes.topology.bytes_per_s[routes.links]
        crossing = sparse.csr_matrix((values, routes.links, routes.starts), shape=(pairs, len(routes.topology.links)))
        if group is None:
            return crossing
        orbit = group.link_orbit
        rows = sparse.csr_matrix((1.0 / self._orbit_sizes[orbit], (np.arange(len(orbit)), orbit)))
        return sparse.csr_matrix(crossing @ rows)

    @cached_property
    def kind_crossing(self) -> sparse.csr_matrix:
        """[kinds, rows] seconds a byte over a hop of each kind, shared out among its images, keeps each link busy."""
        assert self.kinds is not None
        assert self.group is not None
        rate = np.empty(self.rows)
        rate[self.group.link_orbit] = self.routes.topology.bytes_per_s
        kind, orbit = self.kinds.crossing.T
        shape = (len(self.kinds.latency_ns), self.rows)
        return sparse.csr_matrix((1.0 / (rate * self._orbit_sizes)[orbit], (kind, orbit)), shape=shape)

    @cached_property
    def _orbit_sizes(self) -> np.ndarray:
        """[rows] links in each orbit."""
        assert self.group is not None
        return np.bincount(self.group.link_orbit)

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
        return np.asarray((prices / self._orbit_sizes)[self.group.link_orbit])

    @cached_property
    def moving(self) -> np.ndarray:
        """Positions of the commodities large enough to matter."""
        size = self.commodities.size
        return np.flatnonzero(size > NEGLIGIBLE * size.max(initial=0.0))

    def weights(self, prices: np.ndarray) -> np.ndarray:
        """[ranks, ranks] price of one byte over each hop, where a second of link e costs ``prices[e]``."""
        ranks = self.routes.ranks
        weights: np.ndarray
        if self.kinds is None:
            weights = np.where(self.routes.exists, (self.crossing @ prices).reshape(ranks, ranks), np.inf)
        else:
            weights = self.kind_weights(prices)[self.kinds.of]
        np.fill_diagonal(weights, 0.0)
        return weights

    def kind_weights(self, prices: np.ndarray) -> np.ndarray:
        """[kinds] price of one byte over a hop of each kind, infinite for kind 0."""
        weights = np.asarray(self.kind_crossing @ prices)
        weights[0] = np.inf
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
