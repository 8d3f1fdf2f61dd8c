"""Routes: the links a direct send from one GPU to another crosses.

``route(a, b)`` is the path that passes through no other GPU: fewest links first, then the widest (largest smallest
rate), then the smallest ids. It models what NCCL uses for a send from a to b. No such path: the pair cannot
exchange directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synth.errors import TopologyError
from synth.topology.model import DeviceKind, Topology, abridge


def routes_from(topology: Topology, source: str, targets: Sequence[str]) -> list[tuple[int, ...] | None]:
    """Routes from one GPU to several, each the positions of its links in order, or None where there is none."""
    start = topology.index[source]
    hops, levels = _forward(topology, start)
    return [_trace(topology, start, topology.index[target], hops, levels) for target in targets]


@dataclass(slots=True)
class _Reached:
    """A device on shortest paths from the source: the widest rate up to it and the links that enter it."""

    width: float
    entries: list[int]


def _forward(topology: Topology, start: int) -> tuple[dict[int, int], dict[int, _Reached]]:
    """Breadth-first levels from ``start``, never continuing through a GPU."""
    ends, rates, out = topology.link_ends, topology.link_rates, topology.out_links
    gpu = topology.is_gpu
    level = {start: 0}
    reached = {start: _Reached(float("inf"), [])}
    frontier = [start]
    while frontier:
        following: list[int] = []
        for device in frontier:
            if device != start and gpu[device]:
                continue
            here, next_level = reached[device].width, level[device] + 1
            for position in out[device]:
                other = ends[position][1]
                width = min(here, rates[position])
                seen = level.get(other)
                if seen is None:
                    level[other] = next_level
                    reached[other] = _Reached(width, [position])
                    following.append(other)
                elif seen == next_level:
                    known = reached[other]
                    known.entries.append(position)
                    known.width = max(known.width, width)
        frontier = following
    return level, reached


def _trace(
    topology: Topology, start: int, end: int, level: dict[int, int], reached: dict[int, _Reached]
) -> tuple[int, ...] | None:
    """The widest shortest path to ``end`` with the smallest ids."""
    if end == start or end not in level:
        return None
    only = _only_path(topology, start, end, reached)
    if only is not None:
        return only
    width = reached[end].width
    onward: dict[int, list[int]] = {}  # device -> links of widest shortest paths that leave it
    wave = [end]
    seen = {end}
    while wave:
        earlier: list[int] = []
        for device in wave:
            for position in reached[device].entries:
                link = topology.links[position]
                before = topology.index[link.src]
                if link.bytes_per_s >= width and reached[before].width >= width:
                    onward.setdefault(before, []).append(position)
                    if before not in seen:
                        seen.add(before)
                        earlier.append(before)
        wave = earlier
    path: list[int] = []
    device = start
    while device != end:
        best = min(onward[device], key=lambda p: (topology.links[p].dst, -topology.links[p].bytes_per_s, p))
        path.append(best)
        device = topology.index[topology.links[best].dst]
    return tuple(path)


def _only_path(topology: Topology, start: int, end: int, reached: dict[int, _Reached]) -> tuple[int, ...] | None:
    """The shortest path where there is one only, as on most machines; None where there are several."""
    ends = topology.link_ends
    path: list[int] = []
    device = end
    while device != start:
        entries = reached[device].entries
        if len(entries) != 1:
            return None
        path.append(entries[0])
        device = ends[entries[0]][0]
    path.reverse()
    return tuple(path)


@dataclass(frozen=True, kw_only=True)
class Routes:
    """All routes among the ranks of a group, as flat columns; pair (a, b) is row ``a * ranks + b``.

    Attributes:
        topology: where they run.
        devices: the device id of each rank.
        starts: [ranks^2 + 1] where each pair's links begin in ``links``.
        links: positions of links, pair after pair, each in order from sender to receiver.
        latency_ns: [ranks, ranks] sum of latencies; infinite where there is no route.
    """

    topology: Topology
    devices: tuple[str, ...]
    starts: np.ndarray
    links: np.ndarray
    latency_ns: np.ndarray

    @classmethod
    def among(cls, topology: Topology, devices: Sequence[str] | None = None) -> Routes:
        """Find all routes among these GPUs (default: every GPU of the topology).

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
        count = len(ids)
        sizes = np.zeros(count * count, dtype=np.int64)
        flat: list[int] = []
        delays = topology.latency_ns.tolist()
        latency = np.full((count, count), np.inf)
        np.fill_diagonal(latency, 0.0)
        for a, source in enumerate(ids):
            for b, path in enumerate(routes_from(topology, source, ids)):
                if path is not None:
                    sizes[a * count + b] = len(path)
                    flat.extend(path)
                    latency[a, b] = sum(delays[p] for p in path)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return cls(
            topology=topology,
            devices=ids,
            starts=starts,
            links=np.array(flat, dtype=np.int64),
            latency_ns=latency,
        )

    @property
    def ranks(self) -> int:
        """How many ranks the group has."""
        return len(self.devices)

    @cached_property
    def exists(self) -> np.ndarray:
        """[ranks, ranks] whether the ordered pair has a route (False on the diagonal)."""
        return (np.diff(self.starts) > 0).reshape(self.ranks, self.ranks)

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
        reach = self.exists | np.eye(self.ranks, dtype=bool)
        while True:
            wider = reach | ((reach.astype(np.float32) @ reach.astype(np.float32)) > 0)
            if (wider == reach).all():
                break
            reach = wider
        if not reach.all():
            a, b = np.argwhere(~reach)[0]
            unreachable = [self.devices[i] for i in np.flatnonzero(~reach[a])]
            raise TopologyError(
                f"topology {self.topology.name}: {self.devices[a]} cannot reach {abridge(unreachable)}; "
                "no link path joins them, even through the other ranks",
                subject=f"{self.devices[a]}:{self.devices[b]}",
            )
