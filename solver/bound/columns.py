"""Columns of the linear program: routes, many at once, in compressed form."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import sparse

from solver.bound.problem import Problem

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Routes of commodities.

    Attributes:
        commodity: [columns] whose route it is.
        starts: [columns + 1] where each column's hops begin.
        hops: [hops] the pair ``src * ranks + dst`` of every hop; a path's in order.
    """

    commodity: np.ndarray
    starts: np.ndarray
    hops: np.ndarray

    def __len__(self) -> int:
        return len(self.commodity)

    @classmethod
    def none(cls) -> Columns:
        """No column."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def of_paths(cls, commodity: np.ndarray, root: np.ndarray, end: np.ndarray, onward: np.ndarray) -> Columns:
        """Follow next-hop pointers.

        Args:
            commodity: [n] labels.
            root: [n] where each path starts.
            end: [n] where it ends.
            onward: [ranks, ranks] next rank on the way from row to column.
        """
        ranks = len(onward)
        here, rows, steps = root.copy(), [], []
        active = np.arange(len(root))
        while len(active):
            following = onward[here[active], end[active]]
            rows.append(active)
            steps.append(here[active] * ranks + following)
            here[active] = following
            active = active[following != end[active]]
        return cls.gather(commodity, np.concatenate(rows or [active]), np.concatenate(steps or [active]))

    @classmethod
    def of_paths_back(cls, commodity: np.ndarray, root: int, end: np.ndarray, before: np.ndarray) -> Columns:
        """Follow pointers from where paths end to where they start.

        Args:
            commodity: [n] labels.
            root: where all paths start.
            end: [n] where each ends.
            before: [ranks] rank before each on the way from the root, itself for the root.
        """
        here, rows, steps = end.copy(), [], []
        active = np.arange(len(end))
        while len(active):
            earlier = before[here[active]]
            rows.append(active)
            steps.append(earlier * len(before) + here[active])
            here[active] = earlier
            active = active[earlier != root]
        return cls.gather(commodity, np.concatenate(rows[::-1] or [active]), np.concatenate(steps[::-1] or [active]))

    @classmethod
    def of_trees(cls, commodity: np.ndarray, parents: np.ndarray, *, inward: bool) -> Columns:
        """Hops of trees.

        Args:
            commodity: [n] labels.
            parents: [n, ranks] parent of each rank, -1 for the root and ranks outside.
            inward: hops go from child to parent.
        """
        ranks = parents.shape[1]
        rows, child = np.nonzero(parents >= 0)
        parent = parents[rows, child]
        return cls.gather(commodity, rows, child * ranks + parent if inward else parent * ranks + child)

    @classmethod
    def gather(cls, commodity: np.ndarray, rows: np.ndarray, hops: np.ndarray) -> Columns:
        """Columns from hops labelled by row; each row's hops keep their order."""
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(commodity)))])
        return cls(commodity, starts, hops[order])

    def take(self, rows: np.ndarray) -> Columns:
        """Some of the columns, in the given order."""
        sizes = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        offsets = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return Columns(self.commodity[rows], starts, self.hops[np.repeat(self.starts[rows], sizes) + offsets])

    @classmethod
    def join(cls, parts: list[Columns]) -> Columns:
        """All columns of several sets, one after another."""
        if not parts:
            return cls.none()
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        return cls(
            np.concatenate([part.commodity for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([part.hops for part in parts]),
        )

    def usage(self, problem: Problem) -> sparse.csr_matrix:
        """[columns, rows] seconds each row of the problem is busy when the whole commodity takes the column."""
        size = problem.commodities.size[self.commodity]
        values = np.repeat(size, np.diff(self.starts))
        if problem.kinds is None:
            hop, crossing = self.hops, problem.crossing
        else:
            hop, crossing = problem.kinds.of.ravel()[self.hops], problem.kind_crossing
        hops = sparse.csr_matrix((values, hop, self.starts), shape=(len(self), crossing.shape[0]))
        return sparse.csr_matrix(hops @ crossing)

    def entries(self, problem: Problem, row_of: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts, rows and values of these columns in a linear program: their commodity's row, and what they use.

        Args:
            problem: whose columns they are; its rows are the program's first.
            row_of: [commodities] the program's row in which a commodity's shares add up.
            scale: seconds in one unit of the program.
        """
        usage = self.usage(problem)
        starts = np.concatenate([[0], np.cumsum(np.diff(usage.indptr) + 1)])
        rows, values = np.empty(starts[-1], dtype=np.int64), np.ones(starts[-1])
        first = np.zeros(starts[-1], dtype=bool)
        first[starts[:-1]] = True
        rows[first] = row_of[self.commodity]
        rows[~first], values[~first] = usage.indices, usage.data / scale
        return starts, rows, values

    def keys(self) -> list[bytes]:
        """Something equal for equal columns and different for different ones."""
        starts = self.starts.tolist()
        return [
            b"%d:" % label + self.hops[begin:end].tobytes()
            for label, begin, end in zip(self.commodity.tolist(), starts[:-1], starts[1:], strict=True)
        ]


def unseen(keys: Sequence[Key], known: set[Key]) -> np.ndarray:
    """Positions of the keys that are not known yet, each once; from now on they are."""
    fresh = []
    for position, key in enumerate(keys):
        if key not in known:
            known.add(key)
            fresh.append(position)
    return np.array(fresh, dtype=np.int64)
