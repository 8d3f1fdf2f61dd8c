"""One exchange of rows between ranks, each row to any set of ranks, and its way back; differentiable.

Going out copies rows, so coming back adds up what the copies became: each is the other's gradient. Half types are
added in float32 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from runtime.group import Group
from runtime.pytorch.autograd import all_to_all

torch: Any = import_module("torch")


class _Pick(torch.autograd.Function):  # type: ignore[misc]
    """Some rows, as often as they are listed."""

    @staticmethod
    def forward(ctx: Any, rows: Any, index: Any) -> Any:
        """[listed, ...]."""
        ctx.index, ctx.rows = index, len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        """The gradients of a row's copies, added up."""
        return _added(gradients[0], ctx.index, ctx.rows, gradients[0].dtype), None


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """Rows added up where they belong."""

    @staticmethod
    def forward(ctx: Any, parts: Any, index: Any, rows: int, dtype: Any) -> Any:
        """[rows, ...] of a type."""
        ctx.index, ctx.dtype = index, parts.dtype
        return _added(parts, index, rows, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None, None, None]:
        """A row's gradient is that of each of its parts."""
        return gradients[0].index_select(0, ctx.index).to(ctx.dtype), None, None, None


def _added(parts: Any, index: Any, rows: int, dtype: Any) -> Any:
    wide = torch.float32 if parts.dtype in (torch.float16, torch.bfloat16) else parts.dtype
    total = torch.zeros(rows, *parts.shape[1:], dtype=wide, device=parts.device)
    return total.index_add_(0, index, parts.to(wide)).to(dtype)


def pick(rows: Any, index: Any) -> Any:
    """Some rows of a tensor; gradients of a row that is picked twice are added up in float32."""
    return _Pick.apply(rows, index)


def add_up(parts: Any, index: Any, rows: int, dtype: Any) -> Any:
    """[rows, ...] sums, in float32 or wider, of the parts with each index."""
    return _Sum.apply(parts, index, rows, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """An exchange that was agreed on.

    Attributes:
        group: among whom.
        counts: [ranks, ranks] rows from rank to rank.
        order: [sent] which of this rank's rows each sent row is, by target.
        rows: how many rows this rank has.
    """

    group: Group
    counts: np.ndarray
    order: Any
    rows: int

    @classmethod
    def agree(cls, group: Group, targets: Any) -> Hop:
        """Tell the other ranks how many rows they get.

        Args:
            group: all its ranks call this.
            targets: [rows, ranks] whether each row goes to each rank, once.
        """
        _, order = torch.nonzero(targets.T, as_tuple=True)
        counts = group.exchange_counts(targets.sum(0).cpu().numpy())
        return cls(group, counts, order, len(targets))

    def go(self, rows: Any) -> Any:
        """[arrived, ...] rows by origin; ``rows`` is [rows, ...]."""
        return all_to_all(pick(rows, self.order), self.group, self.counts)

    def come_back(self, results: Any) -> Any:
        """[rows, ...] the sum of what became of each row; ``results`` is [arrived, ...]."""
        back = all_to_all(results, self.group, self.counts.T.copy())
        return add_up(back, self.order, self.rows, results.dtype)


def membership(owners: Any, wanted: Any, ranks: int) -> Any:
    """[rows, ranks] whether any wanted owner of a row is that rank.

    Args:
        owners: [rows, choices] ranks; where not wanted, anything.
        wanted: [rows, choices].
        ranks: how many there are.
    """
    found = torch.zeros(len(owners), ranks + 1, dtype=torch.bool, device=owners.device)
    found.scatter_(1, torch.where(wanted, owners, ranks).long(), True)
    return found[:, :ranks]
