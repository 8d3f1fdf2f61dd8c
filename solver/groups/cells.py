"""Large clusters: nodes as cells, and equal cells worked out once.

A group's routes are found in the part of the topology that matters to it: the nodes of its members and the fabric.
Groups that look the same there (same cells, same places in them, same attachments) put the same bytes on the same
links, so they are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from solver.groups.pricing import price_on
from solver.groups.problem import Groups, Problem
from synth.topology import Routes, Topology

MOST_FLOWS = 2_000
"""Larger groups whose members all have direct routes use those: behind switches nothing is faster."""


class Cells:
    """The nodes of a problem's GPUs.

    Attributes:
        members: positions in ``problem.gpus`` of each cell's GPUs.
        cell_of: [gpus] cell of each GPU.
        kind_of: for each cell, a number that equal cells share.
        attached: for each cell, the fabric devices its links lead to.
        direct: whether links join cells without a fabric device between.
    """

    def __init__(self, problem: Problem) -> None:
        topology = problem.topology
        self.problem = problem
        self._node_of = [device.node for device in topology.devices]
        names = list(dict.fromkeys(self._node_of[topology.index[gpu]] or "" for gpu in problem.gpus))
        place = {name: cell for cell, name in enumerate(names)}
        self.cell_of = np.array([place[self._node_of[topology.index[gpu]] or ""] for gpu in problem.gpus])
        self.members = [tuple(np.flatnonzero(self.cell_of == cell).tolist()) for cell in range(len(names))]
        self._names = names
        self._collect(place)
        self._known: dict[Hashable, np.ndarray | None] = {}

    def _collect(self, place: dict[str, int]) -> None:
        """Sort devices and links by cell; links between two cells, or inside the fabric, belong to none."""
        topology = self.problem.topology
        self._devices: list[list[int]] = [[] for _ in self.members]
        self._links: list[list[int]] = [[] for _ in self.members]
        self._fabric_devices: list[int] = []
        self._fabric_links: list[int] = []
        local: dict[int, int] = {}
        for position, name in enumerate(self._node_of):
            if name is None:
                self._fabric_devices.append(position)
            elif name in place:
                local[position] = len(self._devices[place[name]])
                self._devices[place[name]].append(position)
        shape: list[list[Hashable]] = [[] for _ in self.members]
        outside: list[set[int]] = [set() for _ in self.members]
        for position, link in enumerate(topology.links):
            ends = [topology.index[link.src], topology.index[link.dst]]
            cells = {place.get(name, -2) if name is not None else -1 for name in (self._node_of[end] for end in ends)}
            if -2 in cells:
                continue  # touches a node that takes no part
            if len(cells - {-1}) == 1:
                cell = max(cells)
                self._links[cell].append(position)
                outside[cell] |= {end for end in ends if end not in local}
                names = tuple(local.get(end, ("fabric", end)) for end in ends)
                shape[cell].append((names, link.link_class, link.bytes_per_s, link.latency_ns))
            else:
                self._fabric_links.append(position)
        self.direct = any(self._node_of[topology.index[topology.links[p].src]] is not None for p in self._fabric_links)
        kinds = [tuple(topology.devices[position].kind for position in devices) for devices in self._devices]
        gpus = [tuple(local[topology.index[self.problem.gpus[gpu]]] for gpu in members) for members in self.members]
        seen: dict[Hashable, int] = {}
        self.kind_of = [
            seen.setdefault((kinds[c], gpus[c], tuple(shape[c])), len(seen)) for c in range(len(self.members))
        ]
        self.attached = [tuple(sorted(ends)) for ends in outside]

    def part(self, cells: Sequence[int]) -> tuple[Topology, list[int]]:
        """The topology of these cells and the fabric, and the positions of its links in the whole."""
        whole = self.problem.topology
        devices = [position for cell in cells for position in self._devices[cell]] + self._fabric_devices
        links = [position for cell in cells for position in self._links[cell]]
        inside = set(devices)
        links += [
            p
            for p in self._fabric_links
            if whole.index[whole.links[p].src] in inside and whole.index[whole.links[p].dst] in inside
        ]
        return (
            Topology(
                name=whole.name,
                devices=tuple(whole.devices[position] for position in devices),
                links=tuple(whole.links[position] for position in links),
            ),
            links,
        )

    def leaving(self, cell: int) -> float:
        """Bytes per second of all links that leave the cell."""
        topology = self.problem.topology
        inside = set(self._devices[cell])
        return sum(
            link.bytes_per_s
            for link in (topology.links[p] for p in [*self._links[cell], *self._fabric_links])
            if topology.index[link.src] in inside and topology.index[link.dst] not in inside
        )

    def seconds(self, groups: Groups) -> float:
        """Time of a partition when each group takes its own best routes, all at once; infinite if one is cut apart."""
        topology = self.problem.topology
        load = self.problem.background_bytes.copy()
        for group in groups:
            cells = list(dict.fromkeys(self.cell_of[list(group)].tolist()))
            key = self._key(group, cells)
            part, links = None, None
            if key not in self._known:
                part, links = self.part(cells)
                self._known[key] = self._group(group, part)
            found = self._known[key]
            if found is None:
                return float("inf")
            if links is None:
                links = self._part_links(cells)
            load[links] += found
        return float((load / topology.bytes_per_s).max(initial=0.0))

    def _key(self, group: Sequence[int], cells: Sequence[int]) -> Hashable:
        home = self.cell_of[list(group)].tolist()
        places = tuple((cells.index(c), self.members[c].index(g)) for c, g in zip(home, group, strict=True))
        if self.direct:
            return (tuple(cells), places)
        return (tuple(self.kind_of[cell] for cell in cells), places)

    def _part_links(self, cells: Sequence[int]) -> list[int]:
        if self.direct:
            return self.part(cells)[1]
        return [position for cell in cells for position in self._links[cell]] + self._fabric_links

    def _group(self, group: Sequence[int], part: Topology) -> np.ndarray | None:
        routes = Routes.among(part, [self.problem.gpus[gpu] for gpu in group])
        everyone = tuple(range(len(group)))
        return price_on(routes, (everyone,), self.problem.block, most_flows=MOST_FLOWS).loads
