"""Carrying out a rank's program: pack, exchange, unpack, add, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from runtime.buffers import Buffers, Memory
from runtime.elements import Element, Reduction
from synth.plan.program import Message, Program


class Exchanger(Protocol):
    """What carries a program's rounds: a communicator, or several that share a memory."""

    memory: Memory

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`runtime.communicators.base.Communicator.group`."""


def execute(
    communicator: Exchanger,
    program: Program,
    source: Any,
    target: Any,
    element: Element,
    reduction: Reduction = Reduction.SUM,
    marks: list[Any] | None = None,
) -> None:
    """Carry out a program.

    Args:
        communicator: whose rank is the program's.
        program: offsets in elements.
        source: the input's bytes; only read.
        target: the output's bytes; may overlap the input where :func:`runtime.overlap.in_place` made the program.
        element: type of the elements.
        reduction: how contributions are combined.
        marks: receives the memory's mark before and after the exchange of each round; None takes none.

    Raises:
        RemoteError: a peer died or was silent for too long.
    """
    memory = communicator.memory
    buffers = memory.bind(source, target, program.scratch, element)
    memory.prepare(program, element)
    memory.copy(program.local, buffers)
    for round in program.rounds:
        memory.copy(round.pack, buffers)
        if marks is not None:
            marks.append(memory.now())
        communicator.group(round.sends, round.receives, buffers, round.number)
        if marks is not None:
            marks.append(memory.now())
        memory.copy(round.unpack, buffers)
        memory.sum(round.sums, buffers, reduction)
