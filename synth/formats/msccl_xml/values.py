"""What every chunk of memory holds, followed through all steps: undefined reads and the promise of the collective."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from synth.collective import Collective
from synth.formats.msccl_xml.algorithm import Buffer
from synth.formats.msccl_xml.buffers import Buffers, Place
from synth.formats.msccl_xml.schedule import Move, Program
from synth.verifier import Violation

Value = tuple[int, ...]
"""Contributions that were added up, in ascending order; one that is in it twice was added twice."""

UNKNOWN: Value = (-1,)
"""What a step that read undefined memory passes on; reported once, where it was read."""

MIXED: Value = (-2,)
"""A sum of more than any collective adds up; keeps a program that adds in circles from filling the memory."""


class Memory:
    """The memory of all GPUs while a program runs.

    Args:
        program: well-formed.
        buffers: where data lies at the start.

    Attributes:
        held: what each defined chunk of memory holds.
        messages: what each lane has sent and nobody received yet.
    """

    def __init__(self, program: Program, buffers: Buffers) -> None:
        self.program = program
        self.buffers = buffers
        self.held: dict[Place, Value] = {place: (what,) for place, what in buffers.start()}
        self.messages: list[deque[Value]] = [deque() for _ in program.lanes]
        self.undefined: list[tuple[Move, Place]] = []

    def run(self, move: Move) -> Value | None:
        """Do one move; the value it sends, where it sends one."""
        lane, number, chunk = move
        here = self.program.lanes[lane]
        step = here.block.steps[number]
        kind, rank = step.kind, here.gpu.id
        value: Value = ()
        if kind.receives:
            value = self.messages[here.fed_by].popleft()
        if kind.reads_src:
            value = self.add(value, self.read(move, self.buffers.place(rank, step.src, step.src_offset + chunk)))
        if kind.writes_dst:
            place = self.buffers.place(rank, step.dst, step.dst_offset + chunk)
            if kind.adds and not kind.receives:
                value = self.add(value, self.read(move, place))
            self.held[place] = value
        if not kind.sends:
            return None
        self.messages[lane].append(value)
        return value

    def read(self, move: Move, place: Place) -> Value:
        """What a chunk of memory holds; undefined memory is noted."""
        value = self.held.get(place)
        if value is None:
            self.undefined.append((move, place))
            return UNKNOWN
        return value

    def add(self, one: Value, other: Value) -> Value:
        """Both values' contributions; unknown where either is."""
        if not one:
            return other
        if UNKNOWN in (one, other):
            return UNKNOWN
        if MIXED in (one, other) or len(one) + len(other) > 2 * self.program.algorithm.ranks:
            return MIXED
        return tuple(sorted(one + other))


def check_values(program: Program, buffers: Buffers, order: Sequence[Move]) -> Iterator[Violation]:
    """``undefined-read`` and ``postcondition``, for a program whose steps run in this order."""
    memory = Memory(program, buffers)
    for move in order:
        memory.run(move)
    told: set[tuple[int, int]] = set()
    for (lane, number, _), (rank, buffer, chunk) in memory.undefined:
        if (lane, number) not in told:
            told.add((lane, number))
            where = program.at(lane, number)
            message = f"{where}: reads chunk {chunk} of the {buffer.name.lower()} before it is written"
            yield Violation(rule="undefined-read", message=message, rank=rank, chunk=chunk)
    yield from _promise(memory, buffers)


def root_of(memory: Memory, buffers: Buffers) -> int:
    """The root a broadcast or reduce was written for, which the file does not say; 0 for the rest."""
    ranks = range(buffers.algorithm.ranks)
    if buffers.collective is Collective.BROADCAST:
        held = memory.held.get(buffers.place(ranks[-1], Buffer.OUTPUT, 0))
        first = memory.held.get(buffers.place(0, Buffer.OUTPUT, 0))
        # in place, every output starts out defined, so ask one that was written
        for value, rank in ((held, ranks[-1]), (first, 0)):
            if value and value[0] >= 0 and value != (rank * buffers.width,):
                return value[0] // buffers.width
        return 0
    if buffers.collective is Collective.REDUCE:
        sizes = [len(memory.held.get(buffers.place(rank, Buffer.OUTPUT, 0), ())) for rank in ranks]
        return sizes.index(max(sizes))
    return 0


def _promise(memory: Memory, buffers: Buffers) -> Iterator[Violation]:
    for place, wanted in buffers.promised(root_of(memory, buffers)):
        value = memory.held.get(place)
        if value in (wanted, UNKNOWN):
            continue
        rank, buffer, chunk = place
        what = "nothing" if value is None else describe(value, wanted, buffers.width)
        message = f"rank {rank} ends with {what} in chunk {chunk} of the {buffer.name.lower()}"
        yield Violation(rule="postcondition", message=message, rank=rank, chunk=chunk)


def describe(value: Value, wanted: Value, width: int) -> str:
    """How a value differs from what it should be."""
    if value == MIXED:
        return "a sum of too many contributions"
    if len(wanted) == len(value) == 1:
        (rank, chunk), (right, place) = divmod(value[0], width), divmod(wanted[0], width)
        return f"chunk {chunk} of rank {rank} instead of chunk {place} of rank {right}"
    has, needs = Counter(value), Counter(wanted)
    for verdict, difference in (("too often", has - needs), ("missing", needs - has)):
        if difference:
            one = min(difference)
            more = f" and {len(difference) - 1} more" if len(difference) > 1 else ""
            return f"the contribution of rank {one // width} (its chunk {one % width}){more} {verdict}"
    return "something else"
