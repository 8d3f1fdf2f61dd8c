"""What each collective promises, in plain numpy: inputs and outputs of every rank for given counts."""

import numpy as np

from synth.collective import Collective


def draw_counts(collective, members, rng, most=50, pairs=()):
    """Counts in the shape the collective needs, with zeros, among them whole rows and columns."""
    if collective in (Collective.ALLTOALL, Collective.SENDRECV):
        counts = rng.integers(0, most + 1, (members, members)) * (rng.random((members, members)) > 0.2)
        counts[rng.integers(members)] = 0
        counts[:, rng.integers(members)] = 0
        if collective is Collective.SENDRECV:
            mask = np.zeros_like(counts)
            mask[tuple(zip(*pairs, strict=True))] = 1
            counts = counts * mask
        return counts
    if collective in (Collective.ALLGATHER, Collective.REDUCE_SCATTER):
        return rng.integers(0, most + 1, members) * (rng.random(members) > 0.2)
    return int(rng.integers(0, most + 1))


def uniform_counts(collective, members, count, pairs=()):
    """The same count everywhere (on the pairs only, for sendrecv)."""
    if collective is Collective.SENDRECV:
        counts = np.zeros((members, members), dtype=np.int64)
        counts[tuple(zip(*pairs, strict=True))] = count
        return counts
    if collective is Collective.ALLTOALL:
        return np.full((members, members), count)
    if collective in (Collective.ALLGATHER, Collective.REDUCE_SCATTER):
        return np.full(members, count)
    return count


def case(collective, counts, members, ranks, root, draw):
    """(inputs, outputs) per rank; helpers have empty ones. ``draw(n)`` makes n values."""
    empty = draw(0)
    helpers = [empty] * (ranks - members)
    if collective in (Collective.ALLTOALL, Collective.SENDRECV):
        blocks = [[draw(int(n)) for n in row] for row in counts]
        inputs = [np.concatenate(row) for row in blocks]
        outputs = [np.concatenate([blocks[o][r] for o in range(members)]) for r in range(members)]
    elif collective is Collective.ALLGATHER:
        inputs = [draw(int(n)) for n in counts]
        outputs = [np.concatenate(inputs)] * members
    else:
        total = int(np.sum(counts))
        inputs = [draw(total) for _ in range(members)]
        whole = np.sum(inputs, axis=0, dtype=inputs[0].dtype)
        if collective is Collective.REDUCE_SCATTER:
            outputs = np.split(whole, np.cumsum(counts)[:-1])
        elif collective is Collective.ALLREDUCE:
            outputs = [whole] * members
        elif collective is Collective.REDUCE:
            outputs = [whole if r == root else empty for r in range(members)]
        else:  # broadcast
            inputs = [inputs[r] if r == root else empty for r in range(members)]
            outputs = [inputs[root]] * members
    return inputs + helpers, list(outputs) + helpers
