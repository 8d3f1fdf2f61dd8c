"""The cheapest trees of a contraction, one root at a time."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from synth.collective.by_orbit import Contraction, Level


class Trees:
    """Trees from any root, opened from the last step of a contraction to the first."""

    def __init__(self, contraction: Contraction) -> None:
        self._ranks = len(contraction.levels[0].part)
        self._steps = [_Step(level) for level in reversed(contraction.levels)]

    def parents(self, root: int) -> np.ndarray:
        """[ranks] parent of each rank in the cheapest tree from one rank, -1 for the root."""
        entry = np.array([root])  # of each part of the step before, the rank the tree enters it by
        parents = np.full(self._ranks, -1)
        for step in self._steps:
            entry = step.entered(entry, parents)
        return parents


class _Step:
    """Hops between parts that one step contracted."""

    def __init__(self, level: Level) -> None:
        self._part, self._parts = level.part, len(level.whole)
        tail, head = level.part[level.src], level.part[level.dst]
        between = np.flatnonzero(tail != head)
        self._code, first = np.unique(tail[between] * self._parts + head[between], return_index=True)
        self._src, self._dst = level.src[between[first]], level.dst[between[first]]

    def entered(self, entry: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """[parts] the rank a tree enters each part by, from that of each of those they became.

        Hops are followed breadth-first from the part that is entered; ``parents`` gets those that are taken.
        """
        parts, begins = self._parts, self._part[entry]
        rows = np.concatenate([self._code // parts, np.full(len(begins), parts)])
        columns = np.concatenate([self._code % parts, begins])
        graph = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(parts + 1, parts + 1))
        _, before = breadth_first_order(graph, parts)
        entered = np.empty(parts, dtype=np.int64)
        others = np.ones(parts, dtype=bool)
        others[begins] = False
        reached = np.flatnonzero(others)
        hop = np.searchsorted(self._code, before[reached].astype(np.int64) * parts + reached)
        parents[self._dst[hop]] = self._src[hop]
        entered[begins] = entry
        entered[reached] = self._dst[hop]
        return entered
