"""Running a program's steps in an order that its waiting allows, or finding who waits for whom forever.

Steps of several chunks are taken apart into **moves** of one chunk, because the runtime passes them on one by one. A
connection holds only so many messages, so a sender may have to wait for the receiver. Each queue has one writer and
one reader, hence the outcome does not depend on the order tried: where one order blocks, all do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from synth.errors import LimitError
from synth.formats.msccl_xml.algorithm import NOBODY, Algorithm, Gpu, Kind, Step, Threadblock
from synth.formats.msccl_xml.structure import at
from synth.verifier import Violation

MAX_MOVES = 2_000_000

SLOTS = {"Simple": 2, "LL": 8, "LL128": 8}
"""Chunks a connection holds: NCCL gives it 8 slots, and a full slice of a chunk takes four with Simple, one with LL."""

Move = tuple[int, int, int]
"""(lane, step, chunk of the step)."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A threadblock with what it is connected to, as positions in :attr:`Program.lanes`."""

    gpu: Gpu
    block: Threadblock
    feeds: int
    """The lane that receives what this one sends, or ``NOBODY``."""
    fed_by: int
    """The lane that sends what this one receives, or ``NOBODY``."""
    siblings: dict[int, int]
    """Lanes of the same GPU by threadblock id."""


class Program:
    """A well-formed program with its connections resolved.

    Args:
        algorithm: without violations of :mod:`synth.formats.msccl_xml.structure`.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        blocks = [(gpu, block) for gpu in algorithm.gpus for block in gpu.threadblocks]
        senders = {(gpu.id, block.send, block.channel): lane for lane, (gpu, block) in enumerate(blocks)}
        receivers = {(block.recv, gpu.id, block.channel): lane for lane, (gpu, block) in enumerate(blocks)}
        siblings: dict[int, dict[int, int]] = {}
        for lane, (gpu, block) in enumerate(blocks):
            siblings.setdefault(gpu.id, {})[block.id] = lane
        self.lanes = [
            Lane(
                gpu,
                block,
                receivers[gpu.id, block.send, block.channel] if block.send != NOBODY else NOBODY,
                senders[block.recv, gpu.id, block.channel] if block.recv != NOBODY else NOBODY,
                siblings[gpu.id],
            )
            for gpu, block in blocks
        ]

    def step(self, move: Move) -> Step:
        """The step a move belongs to."""
        return self.lanes[move[0]].block.steps[move[1]]

    def at(self, lane: int, step: int) -> str:
        """Where a step is, for messages."""
        where = self.lanes[lane]
        return at(where.gpu, where.block, where.block.steps[step])

    @property
    def slots(self) -> int:
        """Chunks each connection holds."""
        return SLOTS.get(self.algorithm.protocol, min(SLOTS.values()))

    @property
    def longest(self) -> int:
        """Chunks of the longest message."""
        return max((step.count for lane in self.lanes for step in lane.block.steps), default=1)

    @cached_property
    def awaited(self) -> frozenset[tuple[int, int]]:
        """(lane, step) of every step that some other threadblock waits for."""
        return frozenset(
            (lane.siblings[step.after_block], step.after_step)
            for lane in self.lanes
            for step in lane.block.steps
            if step.after_block != NOBODY
        )


def run(program: Program, slots: int) -> tuple[list[Move], list[Violation]]:
    """Run every step, connections holding ``slots`` chunks that nobody received yet.

    Returns:
        the moves in an order that respects all waiting, and the circles of steps that wait for each other.

    Raises:
        LimitError: there are more than ``MAX_MOVES``.
    """
    total = sum(max(step.count, 1) for lane in program.lanes for step in lane.block.steps)
    if total > MAX_MOVES:
        raise LimitError(f"msccl-xml: its steps move {total} chunks in all; at most {MAX_MOVES} are checked")
    return _Run(program, slots).run()


class _Run:
    def __init__(self, program: Program, slots: int) -> None:
        self.program = program
        self.slots = slots
        count = len(program.lanes)
        self.step = [0] * count
        self.chunk = [0] * count
        self.sent = [0] * count
        self.received = [0] * count
        self.waiting: dict[int, set[int]] = {}
        self.order: list[Move] = []

    def run(self) -> tuple[list[Move], list[Violation]]:
        ready = deque(range(len(self.program.lanes)))
        while ready:
            ready.extend(self.advance(ready.popleft()))
        return self.order, list(self.circles())

    def advance(self, lane: int) -> set[int]:
        """Run one lane as far as it goes; the lanes that waited for it may go on."""
        steps = self.program.lanes[lane].block.steps
        began = len(self.order)
        while self.step[lane] < len(steps):
            blocker = self.blocker(lane)
            if blocker is not None:
                self.waiting.setdefault(blocker, set()).add(lane)
                break
            step = steps[self.step[lane]]
            self.order.append((lane, self.step[lane], self.chunk[lane]))
            self.received[lane] += step.kind.receives
            self.sent[lane] += step.kind.sends
            self.chunk[lane] += 1
            if self.chunk[lane] >= step.count or step.kind is Kind.NOP:
                self.step[lane], self.chunk[lane] = self.step[lane] + 1, 0
        return self.waiting.pop(lane, set()) if len(self.order) > began else set()

    def blocker(self, lane: int) -> int | None:
        """The lane this one has to wait for now."""
        here = self.program.lanes[lane]
        step = here.block.steps[self.step[lane]]
        if self.chunk[lane] == 0 and step.after_block != NOBODY:
            other = here.siblings[step.after_block]
            if self.step[other] <= step.after_step:
                return other
        if step.kind.receives and self.sent[here.fed_by] <= self.received[lane]:
            return here.fed_by
        if step.kind.sends and self.sent[lane] - self.received[here.feeds] >= self.slots:
            return here.feeds
        return None

    def circles(self) -> Iterator[Violation]:
        """``deadlock``: each circle of waiting, once."""
        lanes = self.program.lanes
        stuck = {lane for lane in range(len(lanes)) if self.step[lane] < len(lanes[lane].block.steps)}
        seen: set[int] = set()
        for start in sorted(stuck):
            path: list[int] = []
            lane: int | None = start
            while lane is not None and lane not in seen:
                seen.add(lane)
                path.append(lane)
                lane = self.blocker(lane)
            if lane in path:
                circle = path[path.index(lane) :]
                names = [self.program.at(each, self.step[each]) for each in circle[:4]]
                more = f", and {len(circle) - 4} more" if len(circle) > 4 else ""
                message = f"{' waits for '.join(names)}{more}, which waits for the first"
                if len(circle) == 1:
                    message = f"{names[0]} waits for itself"
                yield Violation(rule="deadlock", message=message, rank=lanes[circle[0]].gpu.id)
