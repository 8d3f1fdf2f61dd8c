"""What columns put on links, pair by pair: the numbers that both the routing and the adversary need."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from solver.bound import Columns, Problem


class Table:
    """Weights of links over pairs, for one link and one commodity of each orbit.

    Args:
        problem: an alltoall; with symmetries, one that fixes no rank.

    Attributes:
        links: [rows] one link of each orbit that some route crosses.
        crossing: [pairs, rows] seconds that a byte over each pair's route keeps each of them busy.
        elements: [order, ranks] the symmetries, the identity first.
        pairs: [order, commodities] the pair ``origin * ranks + target`` that each image of a commodity is for.
    """

    def __init__(self, problem: Problem) -> None:
        routes, group = problem.routes, problem.group
        self.problem = problem
        self.ranks = routes.ranks
        used = np.unique(routes.links)
        if group is None:
            self.links = used
            self.elements = np.arange(self.ranks)[None]
        else:
            self.links = used[np.unique(group.link_orbit[used], return_index=True)[1]]
            self.elements = group.elements
        self.crossing = sparse.csr_matrix(problem.plain.crossing[:, self.links])
        root, end = problem.commodities.root, problem.commodities.end
        self.pairs = self.elements[:, root] * self.ranks + self.elements[:, end]

    def moved(self, hops: np.ndarray) -> np.ndarray:
        """[order, hops] images of hops."""
        return np.asarray(self.elements[:, hops // self.ranks] * self.ranks + self.elements[:, hops % self.ranks])

    def weights(self, columns: Columns) -> sparse.csr_matrix:
        """[columns, rows * pairs] seconds each link is busy for each byte of each pair, if it takes the column."""
        count, rows = len(columns), len(self.links)
        parts = []
        for pairs, hops in zip(self.pairs, self.moved(columns.hops), strict=True):
            walk = sparse.csr_matrix((np.ones(len(hops)), hops, columns.starts), shape=(count, self.ranks**2))
            load = sparse.coo_matrix(walk @ self.crossing)
            place = load.col.astype(np.int64) * self.ranks**2 + pairs[columns.commodity[load.row]]
            parts.append((load.data, load.row, place))
        data, row, place = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sparse.csr_matrix((data, (row, place)), shape=(count, rows * self.ranks**2))

    def spread(self, weights: sparse.csr_matrix, shares: np.ndarray) -> np.ndarray:
        """[rows, ranks, ranks] seconds each link is busy for each byte of each pair, under these shares."""
        return np.asarray(weights.T @ shares).reshape(len(self.links), self.ranks, self.ranks)

    def prices(self, traffic: np.ndarray) -> np.ndarray:
        """[commodities, ranks, ranks] price of each hop for each commodity.

        Args:
            traffic: [rows, ranks, ranks] of a second that a byte keeps the link busy: the price of one second, times
                the bytes of a matrix.
        """
        active = np.flatnonzero(traffic.any(axis=(1, 2)))
        bytes = traffic[active].reshape(len(active), self.ranks**2)
        crossing = self.crossing[:, active].toarray().T
        everyone = self.moved(np.arange(self.ranks**2))
        total = np.zeros((self.pairs.shape[1], self.ranks**2))
        for pairs, hops in zip(self.pairs, everyone, strict=True):
            total += bytes[:, pairs].T @ crossing[:, hops]
        exists = self.problem.routes.exists.ravel()
        return np.where(exists, total, np.inf).reshape(-1, self.ranks, self.ranks)
