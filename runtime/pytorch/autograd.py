"""A differentiable all-to-all."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from runtime.group import Group

torch: Any = import_module("torch")


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    """The gradient of an all-to-all is the all-to-all the other way round."""

    @staticmethod
    def forward(ctx: Any, rows: Any, group: Group, counts: np.ndarray) -> Any:
        """Rows by origin."""
        ctx.group, ctx.counts = group, counts
        received, _ = group.all_to_all(rows.contiguous(), counts=counts)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None, None]:
        """Gradients go back to where the rows came from."""
        returned, _ = ctx.group.all_to_all(gradients[0].contiguous(), counts=ctx.counts.T.copy())
        return returned, None, None


def all_to_all(rows: Any, group: Group, counts: np.ndarray) -> Any:
    """Exchange the rows of a tensor, with gradients.

    Args:
        rows: [rows, ...] for rank 0 first, then for rank 1, and so on.
        group: among whom.
        counts: [ranks, ranks] rows from rank to rank, as :meth:`Group.exchange_counts` gives them.

    Returns:
        [rows, ...] by origin.
    """
    return _AllToAll.apply(rows, group, counts)
