"""What crosses the network under a placement: who sends how many tokens to whom, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.placement.problem import Placement, Shape
from synth.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic:
    """What is known beyond the loads.

    Attributes:
        sources: [layers, ranks, experts] tokens each rank sends to each expert; None: every rank sends equally many.
        together: [layers, experts, experts] tokens that choose both experts, symmetric with an empty diagonal; None:
            unknown.
        price: [ranks, ranks] cost of a token from rank to rank; None: 1 between nodes, 0 inside.
    """

    sources: np.ndarray | None = None
    together: np.ndarray | None = None
    price: np.ndarray | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to place by."""
        return self.sources is not None or self.together is not None

    def price_of(self, shape: Shape) -> np.ndarray:
        """[ranks, ranks] the price, or the default one."""
        if self.price is not None:
            return self.price
        node = np.arange(shape.ranks) // shape.ranks_per_node
        return np.asarray((node[:, None] != node).astype(np.float64))

    def check(self, shape: Shape, layers: int) -> None:
        """Check that the tables fit the shape.

        Raises:
            InputError: one does not.
        """
        wanted = {
            "sources": (layers, shape.ranks, shape.experts),
            "together": (layers, shape.experts, shape.experts),
            "price": (shape.ranks, shape.ranks),
        }
        for name, size in wanted.items():
            table = getattr(self, name)
            if table is None:
                continue
            if table.shape != size:
                raise InputError(
                    f"{name}: is {' x '.join(map(str, table.shape))}; must be {' x '.join(map(str, size))}",
                    subject=name,
                )
            if not np.isfinite(table).all() or (table < 0).any():
                raise InputError(f"{name}: holds a negative or unusable number", subject=name)


def traffic_matrix(placement: Placement, loads: np.ndarray, sources: np.ndarray | None = None) -> np.ndarray:
    """Tokens from rank to rank, [layers, ranks, ranks]; an expert's tokens spread evenly over its copies.

    Args:
        placement: where the experts are.
        loads: [layers, experts].
        sources: [layers, ranks, experts]; None: every rank sends equally many tokens to each expert.
    """
    if sources is None:
        received = placement.rank_loads(loads) / placement.shape.ranks
        return np.repeat(received[:, None, :], placement.shape.ranks, axis=1)
    return np.asarray(sources @ placement.split)


def cross_node_share(placement: Placement, matrix: np.ndarray) -> np.ndarray:
    """[layers] share of the tokens that leave their node, from a matrix [layers, ranks, ranks]."""
    shape = placement.shape
    node = np.arange(shape.ranks) // shape.ranks_per_node
    total = matrix.sum(axis=(1, 2))
    crossing = matrix[:, node[:, None] != node].sum(axis=1)
    return np.asarray(np.where(total > 0, crossing / np.where(total > 0, total, 1.0), 0.0))


def node_split(placement: Placement) -> np.ndarray:
    """[layers, experts, nodes] share of each expert's copies that each node holds."""
    split = placement.split
    return np.asarray(split.reshape(*split.shape[:2], placement.shape.nodes, -1).sum(axis=3))


def nodes_per_token(placement: Placement, choices: np.ndarray, layer: int = 0) -> float:
    """Expected number of nodes a token is sent to, its own included, for a trace of top-k choices.

    A token goes once to every node that serves one of its experts (as DeepEP dispatches), each expert at one of its
    copies with equal chance.

    Args:
        placement: where the experts are.
        choices: [tokens, k] experts each token chose.
        layer: of the placement.
    """
    split = node_split(placement)[layer]
    return float((1 - np.prod(1 - split[choices], axis=1)).sum(axis=1).mean())
