"""What a right program sends: every message with the data in it and the rounds it can be put in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from synth.formats.msccl_xml.algorithm import NOBODY
from synth.formats.msccl_xml.buffers import Buffers, Place
from synth.formats.msccl_xml.schedule import Move, Program
from synth.formats.msccl_xml.values import Memory, Value, root_of


class Timing(StrEnum):
    """Where a message's round comes from; a program has none of its own."""

    COMMENTS = "comments"
    """The comments that ``synth export`` writes."""
    WAITS = "waits"
    """As early as its threadblock gets to it: receiving takes a round, sending, copying and adding none."""
    DATA = "data"
    """As early as its data is there, whatever its threadblock does before."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chunk on one connection.

    Attributes:
        src: rank.
        dst: rank.
        value: contributions in it.
        rounds: by timing; ``COMMENTS`` only where the file has one.
    """

    src: int
    dst: int
    value: Value
    rounds: dict[Timing, int]


def messages(program: Program, buffers: Buffers, order: Sequence[Move]) -> tuple[list[Message], int]:
    """All messages, and the root of a broadcast or reduce.

    Args:
        program: right.
        buffers: its memory.
        order: all moves, in an order that respects all waiting.
    """
    watch = _Watch(program, buffers)
    found = [message for move in order if (message := watch.run(move)) is not None]
    return found, root_of(watch.memory, buffers)


class _Watch:
    """Runs a program and notes from which round on things are there."""

    def __init__(self, program: Program, buffers: Buffers) -> None:
        self.program = program
        self.buffers = buffers
        self.memory = Memory(program, buffers)
        self.ready: dict[Place, int] = {}
        self.now = [0] * len(program.lanes)
        self.published: dict[tuple[int, int], int] = {}
        self.flying: list[deque[dict[Timing, int]]] = [deque() for _ in program.lanes]

    def run(self, move: Move) -> Message | None:
        lane, number, chunk = move
        here = self.program.lanes[lane]
        step = here.block.steps[number]
        rank = here.gpu.id
        source = self.buffers.place(rank, step.src, step.src_offset + chunk)
        target = self.buffers.place(rank, step.dst, step.dst_offset + chunk)
        if chunk == 0 and step.after_block != NOBODY:
            awaited = self.published.get((here.siblings[step.after_block], step.after_step), 0)
            self.now[lane] = max(self.now[lane], awaited)
        ready = 0
        if step.kind.receives:
            came = self.flying[here.fed_by].popleft()
            ready = came[Timing.DATA] + 1
            self.now[lane] = max(self.now[lane], came[Timing.WAITS] + 1)
        if step.kind.reads_src:
            ready = max(ready, self.ready.get(source, 0))
        if step.kind.writes_dst:
            if step.kind.adds and not step.kind.receives:
                ready = max(ready, self.ready.get(target, 0))
            self.ready[target] = ready
        self.published[lane, number] = self.now[lane]
        value = self.memory.run(move)
        if value is None:
            return None
        rounds = {Timing.WAITS: self.now[lane], Timing.DATA: ready}
        if step.round is not None:
            rounds[Timing.COMMENTS] = step.round
        self.flying[lane].append(rounds)
        return Message(rank, here.block.send, value, rounds)
