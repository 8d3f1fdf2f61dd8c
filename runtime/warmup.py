"""Connecting edges before the first step of a training: every edge once, in bounded steps, each with a deadline.

NCCL connects two ranks when they first exchange something, inside that call, which can take minutes where all ranks
connect to all at once. Here every rank meets at most one peer per direction and step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

from runtime.communicators.base import Communicator
from runtime.elements import Element
from runtime.executor import Exchanger
from synth.errors import RemoteError
from synth.plan.program import Buffer, Message

_BYTES = 16
Progress = Callable[[int, int, float], None]
"""Called after each step with how many are done, how many there are, and the seconds this one took."""


def connect(
    communicator: Communicator,
    exchanger: Exchanger,
    edges: Iterable[tuple[int, int]],
    progress: Progress | None = None,
) -> dict[int, float]:
    """Send a few bytes along every edge; step k meets the ranks that are k apart.

    Args:
        communicator: all its ranks call this with the same edges.
        exchanger: what the messages go through: the communicator, or a plan's link classes.
        edges: (from, to), the same on every rank.
        progress: told about each step.

    Returns:
        seconds of the step each of this rank's peers was met in, to or from.

    Raises:
        RemoteError: a rank did not answer within the deadline of a step; names it and the step.
    """
    rank, size, memory = communicator.rank, communicator.size, communicator.memory
    wanted = set(edges)
    steps = sorted({(to - origin) % size for origin, to in wanted} - {0})
    seconds: dict[int, float] = {}
    room = memory.staging(2 * _BYTES)
    buffers = memory.bind(room[:_BYTES], room[_BYTES:], 0, Element("byte", 1))
    for number, apart in enumerate(steps):
        to, origin = (rank + apart) % size, (rank - apart) % size
        sends = [Message(to, Buffer.INPUT, 0, _BYTES)] if (rank, to) in wanted else []
        receives = [Message(origin, Buffer.OUTPUT, 0, _BYTES)] if (origin, rank) in wanted else []
        began = time.perf_counter()
        if sends or receives:
            try:
                exchanger.group(sends, receives, buffers, number)
                communicator.synchronize()
            except RemoteError as error:
                raise RemoteError(
                    f"warm-up, step {number + 1} of {len(steps)}: {error.message}", rank=error.rank, round=number
                ) from error
        took = time.perf_counter() - began
        seconds.update({message.peer: took for message in (*sends, *receives)})
        if progress is not None:
            progress(number + 1, len(steps), took)
    return seconds


def pairs(ranks: int) -> set[tuple[int, int]]:
    """Every ordered pair of different ranks."""
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    return set(zip(src.tolist(), dst.tolist(), strict=True))
