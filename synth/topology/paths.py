"""The search behind routes: widest shortest paths that pass through no GPU, the smallest ids among equals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.topology.model import Topology


def routes_from(topology: Topology, source: str, targets: Sequence[str]) -> list[tuple[int, ...] | None]:
    """Routes from one GPU to several, each the positions of its links in order, or None where there is none."""
    start = topology.index[source]
    hops, levels = forward(topology, start)
    return [trace(topology, start, topology.index[target], hops, levels, set()) for target in targets]


@dataclass(slots=True)
class Reached:
    """A device on shortest paths from the source: the widest rate up to it and the links that enter it."""

    width: float
    entries: list[int]


def forward(topology: Topology, start: int) -> tuple[dict[int, int], dict[int, Reached]]:
    """Breadth-first levels from ``start``, never continuing through a GPU."""
    ends, rates, out = topology.link_ends, topology.link_rates, topology.out_links
    gpu = topology.is_gpu
    level = {start: 0}
    reached = {start: Reached(float("inf"), [])}
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
                    reached[other] = Reached(width, [position])
                    following.append(other)
                elif seen == next_level:
                    known = reached[other]
                    known.entries.append(position)
                    known.width = max(known.width, width)
        frontier = following
    return level, reached


def trace(
    topology: Topology,
    start: int,
    end: int,
    level: dict[int, int],
    reached: dict[int, Reached],
    ties: set[tuple[int, int]],
) -> tuple[int, ...] | None:
    """The widest shortest path to ``end`` with the smallest ids; ``ties`` gets (taken, not taken) where ids decided."""
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
        best = min(onward[device], key=lambda p: preference(topology, p))
        ties.update((best, other) for other in onward[device] if other != best)
        path.append(best)
        device = topology.index[topology.links[best].dst]
    return tuple(path)


def preference(topology: Topology, position: int) -> tuple[str, float, int]:
    """What decides between links that leave one device on equally short and wide paths; the least is taken."""
    link = topology.links[position]
    return link.dst, -link.bytes_per_s, position


def _only_path(topology: Topology, start: int, end: int, reached: dict[int, Reached]) -> tuple[int, ...] | None:
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
