"""Kinds of hops: what a direct send costs, where symmetries leave few different answers.

Two routes are of one kind when they cross links of the same orbits equally often: under lengths that are the same on
every orbit both weigh the same. So all hops among 16,384 ranks are one table of small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synth.topology.group import Group

if TYPE_CHECKING:
    from synth.topology.routes import Row

FEW = 1 / 64
"""Where at most this part of all pairs have a hop, hops are looked at one by one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Kinds:
    """The hops among ranks under a group.

    Attributes:
        group: the symmetries.
        of: [ranks, ranks] kind of each hop, 0 where there is no route and on the diagonal.
        crossing: [crossings, 2] kinds and orbits of links: a route of the kind crosses a link of the orbit, each
            time that it does.
        latency_ns: [kinds] sum of latencies; infinite for kind 0.
    """

    group: Group
    of: np.ndarray
    crossing: np.ndarray
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
        kind, place = np.nonzero(kinds >= 0)
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
            crossing=np.stack([kind + 1, kinds[kind, place]], axis=1),
            latency_ns=np.concatenate([[np.inf], latency[first]]),
        )

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.of)

    def weights(self, lengths: np.ndarray) -> np.ndarray:
        """[kinds] sum of link lengths along a route of each kind, infinite for kind 0; lengths are by orbit."""
        kind, orbit = self.crossing.T
        weights = np.bincount(kind, lengths[orbit], minlength=len(self.latency_ns))
        weights[0] = np.inf
        return weights

    @cached_property
    def few(self) -> Hops | None:
        """The hops one by one, where only neighbours have any."""
        if (self.of[self.group.representatives] > 0).mean() > FEW:
            return None
        src, dst = np.nonzero(self.of)
        order = np.argsort(dst, kind="stable")
        return Hops(src[order], dst[order], self.of[src[order], dst[order]])


class Hops(NamedTuple):
    """Hops as columns, by where they end: sender, receiver, kind."""

    src: np.ndarray
    dst: np.ndarray
    kind: np.ndarray
