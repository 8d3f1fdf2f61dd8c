"""Loads of logical experts, as the reference figures for expert placement use them."""

from __future__ import annotations

import numpy as np

KINDS = ("uniform", "zipf1.2", "lognormal1.0")
TOKENS = 1_000_000


def expert_loads(kind: str, layers: int, experts: int, seed: int) -> np.ndarray:
    """Tokens per layer and expert, [layers, experts] int64; each layer sums to about ``TOKENS``.

    Args:
        kind: one of ``KINDS``.
        layers: how many.
        experts: logical experts of a layer.
        seed: of numpy's default generator.

    Raises:
        ValueError: the kind is not known.
    """
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        weights = rng.random((layers, experts))
    elif kind == "zipf1.2":
        popularity = np.arange(1, experts + 1, dtype=np.float64) ** -1.2
        weights = np.stack([popularity[rng.permutation(experts)] for _ in range(layers)])
    elif kind == "lognormal1.0":
        weights = rng.lognormal(0.0, 1.0, (layers, experts))
    else:
        raise ValueError(f"{kind!r} is not one of {', '.join(KINDS)}")
    tokens = np.floor(weights / weights.sum(axis=1, keepdims=True) * TOKENS)
    return np.asarray(tokens.astype(np.int64))
