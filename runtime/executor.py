"""Carrying out a rank's program: pack, exchange, unpack, add, round after round."""

from __future__ import annotations

import time
from typing import Any

from runtime.communicators.base import Communicator
from runtime.elements import Element, Reduction
from synth.plan.program import Program


def execute(
    communicator: Communicator,
    program: Program,
    source: Any,
    target: Any,
    element: Element,
    reduction: Reduction = Reduction.SUM,
) -> dict[int, float]:
    """Carry out a program.

    Args:
        communicator: whose rank is the program's.
        program: offsets in elements.
        source: the input's bytes; only read.
        target: the output's bytes; must not overlap the input.
        element: type of the elements.
        reduction: how contributions are combined.

    Returns:
        seconds spent in each round's exchange, by the plan's round number.

    Raises:
        RemoteError: a peer died or was silent for too long.
    """
    memory = communicator.memory
    buffers = memory.bind(source, target, program.scratch, element)
    memory.prepare(program, element)
    memory.copy(program.local, buffers)
    seconds = {}
    for round in program.rounds:
        memory.copy(round.pack, buffers)
        began = time.perf_counter()
        communicator.group(round.sends, round.receives, buffers, round.number)
        seconds[round.number] = time.perf_counter() - began
        memory.copy(round.unpack, buffers)
        memory.sum(round.sums, buffers, reduction)
    return seconds
