"""Mixture of experts: tokens to the ranks of their experts and back, in order, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from runtime.group import Group
from runtime.pytorch.autograd import all_to_all
from synth.errors import InvalidArgument

torch: Any = import_module("torch")


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """Rows that arrived for this rank's experts.

    Attributes:
        rows: [arrived, dim] by origin.
        experts: [arrived] number of each row's expert, counted on this rank from 0.
        counts: [ranks, ranks] rows from rank to rank.
        order: [sent] which (token, choice) each sent row was, as ``token * k + choice``.
        tokens: how many tokens this rank has.
        choices: experts per token.
    """

    rows: Any
    experts: Any
    counts: np.ndarray
    order: Any
    tokens: int
    choices: int


def dispatch(group: Group, x: Any, indices: Any, experts_per_rank: int) -> Dispatched:
    """Send every token to the ranks of its experts.

    Args:
        group: the expert-parallel group; rank r has the experts from ``r * experts_per_rank`` on.
        x: [tokens, dim].
        indices: [tokens, k] numbers of the chosen experts, over all ranks.
        experts_per_rank: how many experts each rank has.
    """
    tokens, choices = indices.shape
    if x.shape[0] != tokens:
        raise InvalidArgument(f"indices: has {tokens} rows, but x has {x.shape[0]} tokens", subject="indices")
    chosen = indices.reshape(-1)
    order = torch.argsort(chosen, stable=True)
    wanted = chosen[order]
    sent = torch.bincount(wanted // experts_per_rank, minlength=group.size)
    if len(sent) != group.size:
        raise InvalidArgument(f"indices: name experts beyond the {group.size * experts_per_rank} there are")
    counts = group.exchange_counts(sent.cpu().numpy())
    rows = all_to_all(x[order // choices], group, counts)
    experts, _ = group.all_to_all((wanted % experts_per_rank).to(torch.int32), counts=counts)
    return Dispatched(rows, experts.long(), counts, order, tokens, choices)


def combine(group: Group, results: Any, weights: Any, sent: Dispatched) -> Any:
    """Bring the experts' results back and add them up, weighted, in the order of the tokens.

    Args:
        group: as in :func:`dispatch`.
        results: [arrived, dim] in the order of ``sent.rows``.
        weights: [tokens, k].
        sent: what :func:`dispatch` gave.

    Returns:
        [tokens, dim].
    """
    back = all_to_all(results, group, sent.counts.T.copy())
    weighted = back * weights.reshape(-1)[sent.order].unsqueeze(1).to(back.dtype)
    total = torch.zeros(sent.tokens, back.shape[1], dtype=back.dtype, device=back.device)
    return total.index_add(0, sent.order // sent.choices, weighted)


class MoELayer(torch.nn.Module):  # type: ignore[misc]
    """A reference mixture-of-experts layer over a group.

    Args:
        group: the expert-parallel group.
        dim: width of a token.
        experts: this rank's experts, equally many on every rank.
        top_k: experts per token.
    """

    def __init__(self, group: Group, dim: int, experts: Sequence[Any], top_k: int = 2) -> None:
        super().__init__()
        self.group, self.top_k = group, top_k
        self.gate = torch.nn.Linear(dim, len(experts) * group.size, bias=False)
        self.experts = torch.nn.ModuleList(experts)

    def forward(self, x: Any) -> Any:
        """[tokens, dim] to [tokens, dim]."""
        scores = torch.softmax(self.gate(x), dim=-1)
        weights, indices = torch.topk(scores, self.top_k, dim=-1)
        sent = dispatch(self.group, x, indices, len(self.experts))
        results = torch.zeros_like(sent.rows)
        for number, expert in enumerate(self.experts):
            mine = torch.nonzero(sent.experts == number).squeeze(1)
            results = results.index_add(0, mine, expert(sent.rows[mine]))
        return combine(self.group, results, weights, sent)
