"""The routes so far, with what they put on links."""

from __future__ import annotations

from scipy import sparse

from solver.bound import Columns
from solver.bound.columns import unseen
from solver.oblivious.table import Table


class Pool:
    """Grows; a route is in it once.

    Attributes:
        columns: the routes.
        weights: [columns, rows * pairs] see :meth:`solver.oblivious.table.Table.weights`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: set[bytes] = set()
        self.columns = Columns.none()
        self.weights = sparse.csr_matrix((0, len(table.links) * table.ranks**2))

    def add(self, columns: Columns) -> bool:
        """Add those that are new; returns whether there are any."""
        fresh = unseen(columns.keys(), self._known)
        if len(fresh):
            columns = columns.take(fresh)
            self.columns = Columns.join([self.columns, columns])
            self.weights = sparse.csr_matrix(sparse.vstack([self.weights, self._table.weights(columns)]))
        return bool(len(fresh))
