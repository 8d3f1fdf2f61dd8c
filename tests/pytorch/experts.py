"""Mixtures of experts whose right answer is known: each expert multiplies by a row of its own."""

import torch

from runtime.pytorch.moe import combine, dispatch

DIM, K, PER_RANK = 16, 8, 4
NODES = {
    "4x2": [f"n{node}/gpu{gpu}" for node in range(4) for gpu in range(2)],
    "uneven": [f"n{node}/gpu{gpu}" for node, gpu in ((0, 0), (1, 0), (0, 1), (2, 5), (0, 2), (1, 3))],
    "one-node": [f"n0/gpu{gpu}" for gpu in range(4)],
    "one-each": [f"n{node}/gpu0" for node in range(4)],
}


def routing(ranks, rank, tokens, dtype):
    """A rank's tokens, choices and weights; the same wherever they are asked for."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(tokens, DIM, generator=generator).to(dtype)
    scores = torch.randn(tokens, PER_RANK * ranks, generator=generator)
    weights, indices = torch.topk(torch.softmax(scores, -1), min(K, PER_RANK * ranks), -1)
    if tokens > 2:
        indices[1, 0] = -1  # a choice that was dropped
        indices[2] = -1
    return x, indices, weights


def factors(ranks):
    """Each expert multiplies by its own row."""
    return torch.randn(PER_RANK * ranks, DIM, generator=torch.Generator().manual_seed(99))


def dense(ranks, rank, tokens, dtype):
    """Output and gradients of a rank's tokens, without any exchange, in float64."""
    x, indices, weights = routing(ranks, rank, tokens, dtype)
    x, weights = x.double().requires_grad_(), weights.double().requires_grad_()
    scale = factors(ranks).double()[indices.clamp(min=0)] * (indices >= 0).unsqueeze(2)
    out = (x.unsqueeze(1) * scale * weights.unsqueeze(2)).sum(1)
    out.square().sum().backward()
    return out.detach(), x.grad, weights.grad


def layer(ep, tokens, dtype, two_level, device="cpu"):
    """(output, gradients, bytes sent by peer, exchanges) over a group."""
    x, indices, weights = (one.to(device) for one in routing(ep.size, ep.rank, tokens, dtype))
    x.requires_grad_()
    weights.requires_grad_()
    mine = factors(ep.size)[PER_RANK * ep.rank : PER_RANK * (ep.rank + 1)].to(device, dtype)
    sent = dispatch(ep, x, indices, PER_RANK, two_level=two_level)
    out = combine(ep, sent.rows * mine[sent.experts], weights, sent)
    moved = {peer: edge.bytes for peer, edge in ep.stats().edges.items()}
    out.square().sum().backward()
    return out.detach(), x.grad, weights.grad, moved, len(sent.hops)
