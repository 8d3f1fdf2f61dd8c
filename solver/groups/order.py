"""The order of ranks: groups one after the other, and inside a group NVLink islands as consecutive runs.

Libraries size their NVLink teams from runs of consecutive ranks on a node, so ranks of one island must not be
interrupted by others.
"""

from __future__ import annotations

import numpy as np

from solver.groups.bound import islands
from solver.groups.problem import Groups, Problem


def island_of(problem: Problem) -> np.ndarray:
    """[gpus] NVLink island of each GPU; islands never span what no NVLink joins."""
    topology = problem.topology
    src = np.array([topology.index[link.src] for link in topology.links], dtype=np.int64)
    dst = np.array([topology.index[link.dst] for link in topology.links], dtype=np.int64)
    label = islands(problem, src, dst)
    return np.asarray(label[[topology.index[gpu] for gpu in problem.gpus]])


def ordered(problem: Problem, groups: Groups) -> Groups:
    """The same groups: members by island, islands and groups by their first GPU in the topology's order."""
    island = island_of(problem)
    arranged = []
    for group in groups:
        first: dict[int, int] = {}
        for gpu in group:
            first.setdefault(int(island[gpu]), gpu)
        arranged.append(tuple(sorted(group, key=lambda gpu: (first[int(island[gpu])], gpu))))
    return tuple(sorted(arranged, key=lambda group: group[0]))


def runs(problem: Problem, order: tuple[int, ...]) -> list[int]:
    """Lengths of the consecutive runs of one island in a rank order."""
    island = island_of(problem)[list(order)]
    starts = np.flatnonzero(np.r_[True, island[1:] != island[:-1]])
    return [int(length) for length in np.diff(np.r_[starts, len(order)])]
