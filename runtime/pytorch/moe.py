"""Mixture of experts: tokens to the ranks of their experts and back, in order, with gradients.

A token goes to each rank at most once, however many of its experts are there. Where the group spans several nodes it
also crosses to each node at most once: it goes to the rank there that has the sender's place in its node (so that each
network card talks to its own rail), which passes it on inside the node; on the way back that rank adds up the node's
results first. DeepEP does the same (Zhao et al., 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from runtime.group import Group
from runtime.pytorch.hops import Hop, add_up, membership, pick
from synth.errors import InvalidArgument

torch: Any = import_module("torch")


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """What arrived for this rank's experts.

    Attributes:
        rows: [pairs, dim] a token for one of this rank's experts.
        experts: [pairs] number of that expert, counted on this rank from 0.
        hops: the exchanges that brought the tokens here.
        token: [pairs] which of the arrived tokens each row is.
        choice: [pairs] which of its choices brought it here.
        arrived: how many tokens arrived, each once.
    """

    rows: Any
    experts: Any
    hops: tuple[Hop, ...]
    token: Any
    choice: Any
    arrived: int


def dispatch(group: Group, x: Any, indices: Any, experts_per_rank: int, *, two_level: bool | None = None) -> Dispatched:
    """Send every token to the ranks of its experts.

    Args:
        group: the expert-parallel group; rank r has the experts from ``r * experts_per_rank`` on.
        x: [tokens, dim].
        indices: [tokens, k] numbers of the chosen experts, over all ranks; -1 chooses none.
        experts_per_rank: how many experts each rank has.
        two_level: whether tokens cross to a node once and are passed on there, at the price of a second exchange;
            the same on all ranks. None does so where the group spans several nodes and some node has several ranks.

    Raises:
        InvalidArgument: the arguments do not fit together; nothing was sent.
    """
    if x.shape[0] != indices.shape[0]:
        raise InvalidArgument(f"indices: has {len(indices)} rows, but x has {len(x)} tokens", subject="indices")
    experts = experts_per_rank * group.size
    if indices.numel() and not -1 <= int(indices.min()) <= int(indices.max()) < experts:
        raise InvalidArgument(f"indices: name experts beyond the {experts} there are", subject="indices")
    spans = 1 < len(set(group.nodes)) < group.size
    rows, chosen, hops = x, indices.to(torch.int32), []
    if spans if two_level is None else two_level:
        hops.append(_across_nodes(group, chosen, experts_per_rank))
        rows, chosen = hops[0].go(rows), hops[0].go(chosen)
        here = _column(group.nodes, chosen)[chosen.long() // experts_per_rank] == group.nodes[group.rank]
        chosen = torch.where((chosen >= 0) & here, chosen, -1)
    owners = chosen // experts_per_rank
    hops.append(Hop.agree(group, membership(owners, chosen >= 0, group.size)))
    rows, chosen = hops[-1].go(rows), hops[-1].go(chosen)
    token, choice = torch.nonzero((chosen >= 0) & (chosen // experts_per_rank == group.rank), as_tuple=True)
    mine = chosen[token, choice].long() % experts_per_rank
    return Dispatched(pick(rows, token), mine, tuple(hops), token, choice, len(rows))


def _across_nodes(group: Group, chosen: Any, experts_per_rank: int) -> Hop:
    """Each token once to each node that has one of its experts, to the rank with this rank's place in its node."""
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(group.nodes):
        members.setdefault(node, []).append(rank)
    place = members[group.nodes[group.rank]].index(group.rank)
    relays = [members[node][place % len(members[node])] for node in group.nodes]
    to = _column(relays, chosen)[chosen.long().clamp(min=0) // experts_per_rank]
    return Hop.agree(group, membership(to, chosen >= 0, group.size))


def _column(values: Sequence[int], like: Any) -> Any:
    return torch.tensor(values, dtype=torch.int64, device=like.device)


def combine(group: Group, results: Any, weights: Any, sent: Dispatched) -> Any:
    """Bring the experts' results back and add them up, weighted, in the order of the tokens.

    Sums are formed on the way: on the experts' rank, on the rank that passed the token on, on the token's own rank.

    Args:
        group: as in :func:`dispatch`.
        results: [pairs, dim] in the order of ``sent.rows``.
        weights: [tokens, k].
        sent: what :func:`dispatch` gave.

    Returns:
        [tokens, dim].
    """
    if len(results) != len(sent.token) or len(weights) != sent.hops[0].rows:
        raise InvalidArgument(
            f"combine: {len(results)} results and {len(weights)} rows of weights do not go with "
            f"{len(sent.token)} rows that arrived and {sent.hops[0].rows} tokens"
        )
    wide = torch.float64 if results.dtype == torch.float64 else torch.float32
    theirs = weights.to(wide)
    for hop in sent.hops:
        theirs = hop.go(theirs)
    weighted = results.to(wide) * theirs[sent.token, sent.choice].unsqueeze(1)
    total = add_up(weighted, sent.token, sent.arrived, results.dtype)
    for hop in reversed(sent.hops):
        total = hop.come_back(total)
    return total


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
