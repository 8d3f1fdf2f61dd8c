"""Data races: two accesses to the same chunk of memory, one of them a write, that nothing orders.

Vector clocks over threadblocks, with the last write and the reads since it per chunk of memory (Flanagan and Freund,
"FastTrack: efficient and precise dynamic race detection", PLDI 2009). What orders accesses: steps of a threadblock,
``depid``/``deps``, and messages; not how many messages a connection happens to hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from synth.formats.msccl_xml.algorithm import NOBODY
from synth.formats.msccl_xml.buffers import Buffers, Place
from synth.formats.msccl_xml.schedule import Move, Program
from synth.verifier import Violation

_CLOCK_ENTRIES = 4096
"""Threadblocks whose clocks are kept at once; larger programs are gone through several times."""

Access = tuple[int, int, int]
"""(lane, time in it, step)."""


def check_races(program: Program, buffers: Buffers, order: Sequence[Move]) -> Iterator[Violation]:
    """``race``: every pair of racing steps, once.

    Args:
        program: well-formed.
        buffers: which say what is the same memory.
        order: all moves, in an order that respects all waiting.
    """
    group: list[int] = []
    for rank in range(program.algorithm.ranks):
        mine = [lane for lane, where in enumerate(program.lanes) if where.gpu.id == rank]
        if group and len(group) + len(mine) > _CLOCK_ENTRIES:
            yield from _Clocks(program, buffers, group).check(order)
            group = []
        group += mine
    yield from _Clocks(program, buffers, group).check(order)


class _Clocks:
    """One pass that watches the memory of some GPUs, whose lanes are ``watched``."""

    def __init__(self, program: Program, buffers: Buffers, watched: list[int]) -> None:
        self.program = program
        self.buffers = buffers
        self.column = {lane: column for column, lane in enumerate(watched)}
        nothing = np.zeros(len(watched), dtype=np.int32)
        self.clock = [nothing] * len(program.lanes)
        self.time = [0] * len(program.lanes)
        self.messages: list[deque[tuple[np.ndarray, int]]] = [deque() for _ in program.lanes]
        self.published: dict[tuple[int, int], tuple[np.ndarray, int]] = {}
        self.written: dict[Place, Access] = {}
        self.read: dict[Place, list[Access]] = {}
        self.reported: set[tuple[int, int, int, int]] = set()

    def check(self, order: Sequence[Move]) -> Iterator[Violation]:
        for lane, number, chunk in order:
            here = self.program.lanes[lane]
            step = here.block.steps[number]
            if chunk == 0 and step.after_block != NOBODY:
                other = here.siblings[step.after_block]
                if other != lane:
                    self.join(lane, other, *self.published[other, step.after_step])
            if step.kind.receives:
                self.join(lane, here.fed_by, *self.messages[here.fed_by].popleft())
            self.time[lane] += 1
            if step.kind.sends:
                self.messages[lane].append((self.clock[lane], self.time[lane]))
            if (lane, number) in self.program.awaited:
                self.published[lane, number] = (self.clock[lane], self.time[lane])
            if lane not in self.column:
                continue
            rank, access = here.gpu.id, (lane, self.time[lane], number)
            if step.kind.reads_src:
                yield from self.reading(self.buffers.place(rank, step.src, step.src_offset + chunk), access)
            if step.kind.writes_dst:
                yield from self.writing(self.buffers.place(rank, step.dst, step.dst_offset + chunk), access)

    def join(self, lane: int, other: int, clock: np.ndarray, time: int) -> None:
        """Let ``lane`` know all that was known at ``time`` in ``other``."""
        merged = clock if clock is self.clock[lane] else np.maximum(self.clock[lane], clock)
        column = self.column.get(other)
        if column is not None and merged[column] < time:
            merged = merged.copy() if merged is clock else merged
            merged[column] = time
        self.clock[lane] = merged

    def before(self, first: Access, second: Access) -> bool:
        """Whether ``first`` is over when ``second``, which runs now, begins."""
        return first[0] == second[0] or self.clock[second[0]][self.column[first[0]]] >= first[1]

    def reading(self, place: Place, access: Access) -> Iterator[Violation]:
        last = self.written.get(place)
        if last is not None and not self.before(last, access):
            yield from self.report(place, last, access, "writes", "reads")
        self.read.setdefault(place, []).append(access)

    def writing(self, place: Place, access: Access) -> Iterator[Violation]:
        last = self.written.get(place)
        if last is not None and not self.before(last, access):
            yield from self.report(place, last, access, "writes", "writes")
        for reader in self.read.pop(place, ()):
            if not self.before(reader, access):
                yield from self.report(place, reader, access, "reads", "writes")
        self.written[place] = access

    def report(self, place: Place, first: Access, second: Access, does: str, also: str) -> Iterator[Violation]:
        key = (first[0], first[2], second[0], second[2])
        if key in self.reported:
            return
        self.reported.add(key)
        rank, buffer, chunk = place
        one, other = self.program.at(first[0], first[2]), self.program.at(second[0], second[2])
        message = f"{one} {does} chunk {chunk} of the {buffer.name.lower()}, {other} {also} it; nothing orders them"
        yield Violation(rule="race", message=message, rank=rank, chunk=chunk)
