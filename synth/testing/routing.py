"""Synthetic top-k routing with planted structure: topics of experts that tokens choose together."""

from __future__ import annotations

import numpy as np


def planted_routing(
    experts: int, topics: int, tokens: int, k: int, seed: int, *, skew: float = 0.6, stray: float = 0.15
) -> np.ndarray:
    """Top-k choices [tokens, k] of distinct experts.

    Experts fall into equal topics at random; a token has one topic (Zipf popularity with exponent ``skew``) and takes
    its experts from it, each replaced by any expert with chance ``stray``. Inside a topic popularity is Zipf too.
    """
    rng = np.random.default_rng(seed)
    size = experts // topics
    members = rng.permutation(experts).reshape(topics, size)
    popular = np.arange(1, topics + 1, dtype=np.float64) ** -skew
    topic = rng.choice(topics, size=tokens, p=popular / popular.sum())
    weight = np.full((tokens, experts), np.log(stray / experts))
    inside = np.log((1 - stray) * np.arange(1, size + 1, dtype=np.float64) ** -skew / size)
    np.put_along_axis(weight, members[topic], np.broadcast_to(inside, (tokens, size)), axis=1)
    noise = rng.gumbel(size=(tokens, experts))  # the k largest of log weight + Gumbel noise: k draws without return
    return np.argpartition(-(weight + noise), k, axis=1)[:, :k]


def loads_of(choices: np.ndarray, experts: int) -> np.ndarray:
    """[experts] tokens that chose each expert."""
    return np.bincount(choices.ravel(), minlength=experts)


def together_of(choices: np.ndarray, experts: int) -> np.ndarray:
    """[experts, experts] tokens that chose both experts, empty on the diagonal."""
    chosen = np.zeros((len(choices), experts), dtype=np.float32)
    np.put_along_axis(chosen, choices, 1.0, axis=1)
    both = (chosen.T @ chosen).astype(np.float64)
    np.fill_diagonal(both, 0.0)
    return both
