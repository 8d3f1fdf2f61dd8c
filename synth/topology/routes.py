"""Routes: the links a direct send from one GPU to another crosses.

``route(a, b)`` is the path that passes through no other GPU: fewest links first, then the widest (largest smallest
rate), then the smallest ids. It models what NCCL uses for a send from a to b. No such path: the pair cannot
exchange directly.

Routes are found from one rank at a time, when they are asked for. Under a group of symmetries those from one rank of
each orbit are found, and the others are their images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from synth.errors import TopologyError
from synth.topology.group import Group
from synth.topology.kinds import Kinds
from synth.topology.model import DeviceKind, Topology, abridge
from synth.topology.paths import forward, trace

BY_KIND = 256
"""Beyond so many ranks, hops that symmetries make alike are priced by their kind and not one by one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """The routes from one rank.

    Attributes:
        targets: [routes] where they lead, ascending; ranks that have none are left out.
        starts: [routes + 1] where each route's links begin in ``links``.
        links: positions of links, route after route, each in order from sender to receiver.
        latency_ns: [routes] sum of latencies.
        ties: [choices, 2] links taken and not taken where only the ids decided; of found routes, not of images.
    """

    targets: np.ndarray
    starts: np.ndarray
    links: np.ndarray
    latency_ns: np.ndarray
    ties: np.ndarray

    def image(self, ranks: np.ndarray, links: np.ndarray) -> Row:
        """The row that a symmetry takes this one to.

        Args:
            ranks: [ranks] image of every rank.
            links: [links] image of every link.
        """
        targets = ranks[self.targets]
        order = np.argsort(targets)
        sizes = np.diff(self.starts)[order]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        from_here = np.repeat(self.starts[:-1][order] - starts[:-1], sizes) + np.arange(starts[-1])
        return Row(
            targets=targets[order],
            starts=starts,
            links=links[self.links[from_here]],
            latency_ns=self.latency_ns[order],
            ties=np.zeros((0, 2), dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Routes:
    """All routes among the ranks of a group, found from one rank at a time or, as flat columns, all at once.

    Attributes:
        topology: where they run.
        devices: the device id of each rank.
        group: symmetries under which the image of every route is the route of the images; None where none are used.
    """

    topology: Topology
    devices: tuple[str, ...]
    group: Group | None = None
    _rows: dict[int, Row] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def among(cls, topology: Topology, devices: Sequence[str] | None = None) -> Routes:
        """The routes among these GPUs (default: every GPU of the topology).

        Raises:
            TopologyError: a device is not there, is no GPU, or stands twice.
        """
        ids = topology.gpus if devices is None else tuple(devices)
        for id in ids:
            if topology.device(id).kind is not DeviceKind.GPU:
                raise TopologyError(f"{id}: is a {topology.device(id).kind}; ranks run on GPUs", subject=id)
        if len(set(ids)) != len(ids):
            double = next(id for id in ids if ids.count(id) > 1)
            raise TopologyError(f"{double}: stands twice among the ranks; each rank needs its own GPU", subject=double)
        return cls(topology=topology, devices=ids)

    def under(self, group: Group) -> Routes:
        """The same routes, of which those from one rank of each orbit are found; the group was checked before."""
        return replace(self, group=group)

    @property
    def ranks(self) -> int:
        """How many ranks the group has."""
        return len(self.devices)

    def row(self, rank: int) -> Row:
        """The routes from one rank, found now or known from before."""
        row = self._rows.get(rank)
        if row is None:
            row = self._rows[rank] = self._found(rank)
        return row

    def _found(self, rank: int) -> Row:
        topology = self.topology
        start, delays = self._positions[rank], self._delays
        level, reached = forward(topology, start)
        targets: list[int] = []
        sizes: list[int] = []
        links: list[int] = []
        latency: list[float] = []
        ties: set[tuple[int, int]] = set()
        for target, end in enumerate(self._positions):
            path = trace(topology, start, end, level, reached, ties)
            if path is not None:
                targets.append(target)
                sizes.append(len(path))
                links.extend(path)
                latency.append(sum(delays[p] for p in path))
        return Row(
            targets=np.array(targets, dtype=np.int64),
            starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            links=np.array(links, dtype=np.int64),
            latency_ns=np.array(latency, dtype=np.float64),
            ties=np.array(sorted(ties), dtype=np.int64).reshape(-1, 2),
        )

    @cached_property
    def kinds(self) -> Kinds | None:
        """The kinds of hops under the group; None where there is no group, or few ranks."""
        if self.group is None or self.ranks <= BY_KIND:
            return None
        return Kinds.told_apart([self.row(rank) for rank in self.group.representatives.tolist()], self.group)

    @cached_property
    def _positions(self) -> list[int]:
        """Of the ranks' devices."""
        return [self.topology.index[device] for device in self.devices]

    @cached_property
    def _delays(self) -> list[float]:
        return self.topology.latency_ns.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _every_row(self) -> list[Row]:
        """The routes from every rank."""
        rows = self._rows
        if self.group is None:
            return [self.row(rank) for rank in range(self.ranks)]
        for rank in self.group.representatives.tolist():
            self.row(rank)
        for rank, source, generator in self.group.made_from():
            if rank not in rows:
                rows[rank] = rows[source].image(self.group.generators[generator], self.group.links[generator])
        return [rows[rank] for rank in range(self.ranks)]

    @cached_property
    def _sizes(self) -> np.ndarray:
        """[ranks, ranks] links of each pair's route, 0 where there is none."""
        sizes = np.zeros((self.ranks, self.ranks), dtype=np.int64)
        for rank, row in enumerate(self._every_row):
            sizes[rank, row.targets] = np.diff(row.starts)
        return sizes

    @cached_property
    def starts(self) -> np.ndarray:
        """[ranks^2 + 1] where the links of each pair begin in ``links``; pair (a, b) is row ``a * ranks + b``."""
        return np.concatenate([[0], np.cumsum(self._sizes.ravel())])

    @cached_property
    def links(self) -> np.ndarray:
        """Positions of links, pair after pair, each in order from sender to receiver."""
        return np.concatenate([row.links for row in self._every_row])

    @cached_property
    def latency_ns(self) -> np.ndarray:
        """[ranks, ranks] sum of latencies; infinite where there is no route."""
        if self.kinds is not None:
            latency = self.kinds.latency_ns[self.kinds.of]
            np.fill_diagonal(latency, 0.0)
            return np.asarray(latency)
        latency = np.full((self.ranks, self.ranks), np.inf)
        np.fill_diagonal(latency, 0.0)
        for rank, row in enumerate(self._every_row):
            latency[rank, row.targets] = row.latency_ns
        return latency

    @cached_property
    def exists(self) -> np.ndarray:
        """[ranks, ranks] whether the ordered pair has a route (False on the diagonal)."""
        return self._sizes > 0 if self.kinds is None else self.kinds.of > 0

    def route(self, a: int, b: int) -> np.ndarray:
        """Positions of the links from rank a to rank b; empty where there is no route."""
        pair = a * self.ranks + b
        return self.links[self.starts[pair] : self.starts[pair + 1]]

    def incidence(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Links crossed by each of several pairs, as (row, link) columns.

        Args:
            pairs: [n] values ``a * ranks + b``; row i of the answer belongs to ``pairs[i]``.
        """
        begin, end = self.starts[pairs], self.starts[pairs + 1]
        sizes = end - begin
        rows = np.repeat(np.arange(len(pairs)), sizes)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows, self.links[np.repeat(begin, sizes) + offsets]

    def hop_weights(self, lengths: np.ndarray) -> np.ndarray:
        """[ranks, ranks] sum of link lengths along each route; infinite without one, 0 on the diagonal."""
        rows = np.repeat(np.arange(self.ranks**2), np.diff(self.starts))
        weights = np.bincount(rows, lengths[self.links], minlength=self.ranks**2).reshape(self.ranks, self.ranks)
        weights = np.where(self.exists, weights, np.inf)
        np.fill_diagonal(weights, 0.0)
        return weights

    def require_connected(self) -> None:
        """Check that every rank can reach every other through hops among these ranks.

        Raises:
            TopologyError: naming one pair that cannot.
        """
        ranks = np.array(self._positions)
        ends = self._relayed
        if self._reached(ends, ranks[0])[ranks].all() and self._reached(ends[:, ::-1], ranks[0])[ranks].all():
            return
        for a in range(self.ranks):
            reached = self._reached(ends, ranks[a])
            unreachable = [self.devices[b] for b in np.flatnonzero(~reached[ranks])]
            if unreachable:
                raise TopologyError(
                    f"topology {self.topology.name}: {self.devices[a]} cannot reach {abridge(unreachable)}; "
                    "no link path joins them, even through the other ranks",
                    subject=f"{self.devices[a]}:{unreachable[0]}",
                )

    @property
    def _relayed(self) -> np.ndarray:
        """[links, 2] ends of the links that hops may cross: none of a GPU that is no rank."""
        closed = np.array(self.topology.is_gpu)
        closed[self._positions] = False
        ends = np.array(self.topology.link_ends, dtype=np.int64).reshape(-1, 2)
        return np.asarray(ends[~closed[ends].any(axis=1)])

    def _reached(self, ends: np.ndarray, start: int) -> np.ndarray:
        """[devices] whether links with these ends lead there."""
        onward: list[list[int]] = [[] for _ in self.topology.devices]
        for src, dst in ends.tolist():
            onward[src].append(dst)
        seen = [device == start for device in range(len(onward))]
        waiting = [start]
        while waiting:
            for device in onward[waiting.pop()]:
                if not seen[device]:
                    seen[device] = True
                    waiting.append(device)
        return np.array(seen)
