"""The hose model: all demand matrices in which no rank sends or receives more than its share.

Source: Duffield et al., "A flexible model for resource management in virtual private networks", 1999. Each link has its
own worst matrix, an optimum of a transportation problem; where all ranks have the same share, it is a permutation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # scipy.optimize is loaded where it is first used: few solves need it

from solver.backend import INFINITY, LinearProgram
from synth.collective import Demand


@dataclass(frozen=True, slots=True, eq=False)
class Hose:
    """Most bytes that each rank sends to and receives from the others.

    Attributes:
        send: [ranks] bytes.
        receive: [ranks] bytes.
    """

    send: np.ndarray
    receive: np.ndarray

    @classmethod
    def of(cls, demand: Demand) -> Hose:
        """The rows and columns of an alltoall's demand."""
        matrix = np.zeros((demand.ranks, demand.ranks))
        blocks = demand.blocks
        matrix[blocks.origin, blocks.target] = blocks.size
        np.fill_diagonal(matrix, 0.0)
        return cls(matrix.sum(axis=1), matrix.sum(axis=0))

    def padded(self, ranks: int) -> Hose:
        """With helpers behind, which send and receive nothing of their own."""
        more = np.zeros(ranks - self.ranks)
        return Hose(np.concatenate([self.send, more]), np.concatenate([self.receive, more]))

    @property
    def ranks(self) -> int:
        """How many."""
        return len(self.send)

    @property
    def even(self) -> bool:
        """Whether all that send and receive anything have the same share of both, up to rounding."""
        shares = np.concatenate([self.send, self.receive])
        alike = shares[shares > 0]
        return not len(alike) or bool(alike.max() - alike.min() <= 1e-12 * alike.max())

    def middle(self) -> np.ndarray:
        """[ranks, ranks] bytes spread as evenly as the shares allow without filling the diagonal."""
        most = max(float(self.send.sum()), float(self.receive.sum()), 1e-300)
        matrix = np.outer(self.send, self.receive) / most
        np.fill_diagonal(matrix, 0.0)
        return np.asarray(matrix)

    def worst_of(self, weights: np.ndarray) -> tuple[float, int]:
        """The largest of what :meth:`worst` finds, and which of the links it is.

        Args:
            weights: [links, ranks, ranks] not negative.
        """
        limit = self.limit(weights)
        most, where = 0.0, 0
        for row in np.argsort(-limit, kind="stable").tolist():
            if limit[row] <= most:
                break
            seconds, _ = self.worst(weights[row])
            if seconds > most:
                most, where = seconds, row
        return most, where

    def limit(self, weights: np.ndarray) -> np.ndarray:
        """[links] at least what :meth:`worst` finds, at hardly any cost.

        Args:
            weights: [links, ranks, ranks].
        """
        by_row = weights.max(axis=2, initial=0.0) @ self.send
        by_column = weights.max(axis=1, initial=0.0) @ self.receive
        return np.asarray(np.minimum(by_row, by_column))

    def worst(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The matrix with the largest weighted sum.

        Args:
            weights: [ranks, ranks] not negative.

        Returns:
            (the sum, [ranks, ranks] bytes).
        """
        idle = (self.send == 0)[:, None] | (self.receive == 0) | np.eye(self.ranks, dtype=bool)
        weights = np.where(idle, 0.0, weights)
        matrix = np.zeros_like(weights)
        if self.even:
            row, column = scipy.optimize.linear_sum_assignment(weights, maximize=True)
            used = weights[row, column] > 0
            matrix[row[used], column[used]] = max(self.send.max(), self.receive.max())
        else:
            row, column = np.nonzero(weights)
            if len(row):
                matrix[row, column] = self._transport(row, column, weights[row, column])
        return float((matrix * weights).sum()), matrix

    def _transport(self, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> np.ndarray:
        """[pairs] bytes of the dearest shipment over some pairs."""
        count, ranks = len(row), self.ranks
        limits = np.concatenate([self.send, self.receive])
        scale = max(float(limits.max()), 1e-300)
        program = LinearProgram(np.full(2 * ranks, -INFINITY), limits / scale)
        ends = np.stack([row, ranks + column], axis=1)
        program.add(-value / value.max(), np.arange(count + 1) * 2, ends.ravel(), np.ones(2 * count))
        return program.solve().columns * scale
