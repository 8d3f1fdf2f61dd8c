"""Traces of expert-parallel traffic: what every rank sends to every rank, step after step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def drifting_zipf(
    ranks: int,
    steps: int,
    *,
    skew: float,
    seed: int,
    experts: int = 256,
    tokens: int = 4096,
    top_k: int = 8,
    token_bytes: int = 7168,
    drift: float = 0.02,
) -> Iterator[np.ndarray]:
    """Byte matrices of an alltoall under Zipf popularity of experts that drifts from step to step.

    Experts live on ranks in blocks of equal size. Each step, about ``drift`` of the experts trade places in the order
    of popularity with another one; each rank then draws its tokens' experts anew.

    Args:
        ranks: in the group; a divisor of ``experts``.
        steps: how many matrices.
        skew: exponent of the Zipf law; 0 is uniform.
        seed: of numpy's default generator.
        experts: logical experts.
        tokens: of each rank and step.
        top_k: experts of a token.
        token_bytes: of one token's data.
        drift: part of the experts that change their place per step.

    Yields:
        [ranks, ranks] int64 bytes from row to column.
    """
    rng = np.random.default_rng(seed)
    popularity = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    popularity /= popularity.sum()
    place = rng.permutation(experts)  # place of each expert in the order of popularity
    for _ in range(steps):
        for _ in range(int(rng.poisson(drift * experts))):
            a, b = rng.integers(experts, size=2)
            place[a], place[b] = place[b], place[a]
        chosen = rng.multinomial(tokens * top_k, popularity[place], size=ranks)
        yield chosen.reshape(ranks, ranks, -1).sum(axis=2) * token_bytes
