"""Kinds of hops: what a direct send costs, where symmetries leave few different answers.

Two routes are of one kind when they cross links of the same orbits equally often: under lengths that are the same on
every orbit both weigh the same. So all hops among 16,384 ranks are one table of small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from synth.topology.group import Group

if TYPE_CHECKING:
    from synth.topology.routes import Row


@dataclass(frozen=True, kw_only=True, eq=False)
class Kinds:
    """The hops among ranks under a group.

    Attributes:
        group: the symmetries.
        of: [ranks, ranks] kind of each hop, 0 where there is no route and on the diagonal.
        crossings: [kinds, link orbits] how many links of each orbit a route of each kind crosses.
        latency_ns: [kinds] sum of latencies; infinite for kind 0.
    """

    group: Group
    of: np.ndarray
    crossings: sparse.csr_matrix
    latency_ns: np.ndarray

    @classmethod
    def told_apart(cls, rows: Sequence[Row], group: Group) -> Kinds:
        """Tell the routes from one rank of each orbit apart, and carry that over to the others.

        Args:
            rows: the routes from each of the group's representatives.
            group: symmetries under which the image of every route is the route of the images.
        """
        sizes = np.concatenate([np.diff(row.starts) for row in rows])
        route = np.repeat(np.arange(len(sizes)), sizes)
        crossed = np.full((len(sizes), sizes.max(initial=0)), -1, dtype=np.int64)
        place = np.arange(len(route)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        crossed[route, place] = group.link_orbit[np.concatenate([row.links for row in rows])]
        kinds, first, which = np.unique(np.sort(crossed, axis=1), axis=0, return_index=True, return_inverse=True)
        orbits = int(group.link_orbit.max(initial=-1)) + 1
        kind, place = np.nonzero(kinds >= 0)
        crossings = (np.ones(len(kind)), (kind + 1, kinds[kind, place]))
        latency = np.concatenate([row.latency_ns for row in rows])
        ranks = len(group.fixed)
        of = np.zeros((ranks, ranks), dtype=np.min_scalar_type(len(kinds)))
        numbers = np.split(which.ravel() + 1, np.cumsum([len(row.targets) for row in rows])[:-1])
        for rank, row, mine in zip(group.representatives.tolist(), rows, numbers, strict=True):
            of[rank, row.targets] = mine
        inverse = np.argsort(group.generators, axis=1)
        for rank, source, generator in group.made_from():
            np.take(of[source], inverse[generator], out=of[rank])
        return cls(
            group=group,
            of=of,
            crossings=sparse.csr_matrix(crossings, shape=(len(kinds) + 1, orbits)),
            latency_ns=np.concatenate([[np.inf], latency[first]]),
        )

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.of)

    def weights(self, lengths: np.ndarray) -> np.ndarray:
        """[kinds] sum of link lengths along a route of each kind, infinite for kind 0; lengths are by orbit."""
        weights = self.crossings @ lengths
        weights[0] = np.inf
        return np.asarray(weights)

    @cached_property
    def few(self) -> sparse.csr_matrix | None:
        """[ranks, ranks] the table without its zeros, where most of it is: hops between neighbours only."""
        rows = self.of[self.group.representatives]
        if (rows > 0).mean() > 1 / 64:
            return None
        return sparse.csr_matrix(self.of)
