"""A plan as an MSCCL XML program.

Each connection has a sending threadblock at one end and a receiving one at the other. A threadblock takes its steps by
round; inside a round messages come before local sums and copies. So every wait is for an earlier round, for the other
end of the same connection, or for an earlier message of the same round (by chunk, then peer), which makes a circle of
waiting impossible however few messages a connection holds. Then threadblocks that pass on what others receive are
fused with those, unless the result could hang: a ring needs connections that hold two messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from synth.collective import Collective
from synth.errors import PlanError
from synth.formats.msccl_xml import schedule
from synth.formats.msccl_xml.algorithm import NOBODY, Algorithm, Buffer, Gpu, Kind, Step
from synth.formats.msccl_xml.dialects import MAX_CHANNELS, MAX_COUNT, MAX_STEPS, Dialect
from synth.formats.msccl_xml.drafts import BlockKey, Blocks, Draft, StepKey, fuse, written
from synth.formats.msccl_xml.schedule import Program
from synth.formats.msccl_xml.structure import MAX_PEERS
from synth.formats.msccl_xml.verifier import verify
from synth.formats.travels import Copy, Spot, Travel, Travels, lay_out
from synth.plan import Plan
from synth.plan.program import Buffer as Memory

THREADBLOCKS = 108
"""Most of a GPU by default: all must be resident at once, and an A100 has 108 multiprocessors."""

MAX_PARTS = 2**20
"""Chunks of all ranks' buffers together; far more than steps could name."""

UNLIMITED = 2**40
"""``maxBytes`` of a plan for every size."""

_BUFFERS = {Memory.INPUT: Buffer.INPUT, Memory.OUTPUT: Buffer.OUTPUT, Memory.SCRATCH: Buffer.SCRATCH}
_SCATTER = {Dialect.V1: "reduce_scatter", Dialect.V2: "reducescatter"}


def from_plan(
    plan: Plan,
    dialect: Dialect = Dialect.V2,
    *,
    in_place: bool = False,
    protocol: str = "Simple",
    threadblocks: int = THREADBLOCKS,
) -> Algorithm:
    """Translate a plan and verify the result.

    Args:
        plan: valid.
        dialect: runtime that is to load it.
        in_place: whether input and output are the same memory. In v2, collectives that add serve both places.
        protocol: Simple, LL or LL128.
        threadblocks: most of one GPU.

    Raises:
        PlanError: the format cannot express it; the message says why.
    """
    travels = lay_out(plan, in_place=in_place)
    if travels.per_buffer * len(plan.ranks) > MAX_PARTS:
        raise PlanError(
            f"plan: its shares are multiples of 1/{travels.per_block} of a block, and buffers of "
            f"{travels.per_buffer} equal chunks are too many steps for MSCCL XML; solve for a coarser plan"
        )
    mine: list[list[Travel]] = [[] for _ in plan.ranks]
    for message in messages(travels):
        mine[message.src].append(message)
        mine[message.dst].append(message)
    gpus = _spread(travels, mine, fused=True)
    program = Program(_finish(travels, gpus, dialect, in_place, protocol))
    if schedule.run(program, program.slots)[1]:
        gpus = _spread(travels, mine, fused=False)  # which cannot hang
    most = max(len(gpu.threadblocks) for gpu in gpus)
    if most > threadblocks:
        raise PlanError(
            f"plan: a GPU exchanges with so many peers that it needs {most} threadblocks; at most {threadblocks} fit "
            "(--threadblocks); solve with a strategy that has fewer peers, or among fewer ranks"
        )
    algorithm = _finish(travels, gpus, dialect, in_place, protocol)
    violations = verify(algorithm, dialect).violations
    if violations:
        raise PlanError(f"plan: cannot be written for {dialect.runtime}: {violations[0].message}")
    return algorithm


def _spread(travels: Travels, mine: list[list[Travel]], *, fused: bool) -> list[Gpu]:
    """All ranks' programs, connections spread over as many channels as keep threadblocks short enough.

    Args:
        travels: the plan.
        mine: [ranks] messages each rank sends or receives.
        fused: whether threadblocks pass on what arrives while it arrives.
    """
    lanes = 1
    while True:
        gpus = [_Rank(travels, rank, lanes).gpu(mine[rank], fused) for rank in range(len(mine))]
        longest = max((len(block.steps) for gpu in gpus for block in gpu.threadblocks), default=0)
        if longest <= MAX_STEPS:
            return gpus
        lanes *= 2
        if lanes > MAX_CHANNELS:
            raise PlanError(f"plan: needs threadblocks of {longest} steps; MSCCL XML has at most {MAX_STEPS}")


def _finish(travels: Travels, gpus: list[Gpu], dialect: Dialect, in_place: bool, protocol: str) -> Algorithm:
    """Add the attributes of ``algo`` that the dialect wants."""
    plan = travels.plan
    scatter = plan.collective is Collective.REDUCE_SCATTER
    collective = _SCATTER[dialect] if scatter else plan.collective.value
    channels = max((block.channel + 1 for gpu in gpus for block in gpu.threadblocks), default=1)
    both = dialect is Dialect.V2 and plan.collective.reduces
    inside, outside = in_place or both, not in_place or both
    root = "" if plan.root is None else f" root={plan.root}"
    name = f"synth {plan.collective.value} {plan.digest[:12]}{root} segments={plan.segments}"
    attributes = {
        "name": name,
        "proto": protocol,
        "nchannels": channels,
        "nchunksperloop": travels.per_buffer,
        "ngpus": len(gpus),
        "coll": collective,
        "inplace": int(inside),
        "outofplace": int(outside),
        "minBytes": plan.min_bytes,
        "maxBytes": min(plan.max_bytes, UNLIMITED),
    }
    if dialect is Dialect.V1:
        del attributes["outofplace"]
    return Algorithm(
        name=name,
        collective=collective,
        protocol=protocol,
        channels=channels,
        chunks_per_loop=travels.per_buffer,
        gpus=tuple(gpus),
        in_place=inside,
        out_of_place=outside,
        attributes={key: str(value) for key, value in attributes.items()},
    )


@dataclass
class _Rank:
    """Writes one rank's threadblocks."""

    travels: Travels
    rank: int
    lanes: int
    blocks: Blocks = field(default_factory=dict)
    clocks: dict[StepKey, dict[BlockKey, int]] = field(default_factory=dict)
    written: dict[tuple[Memory, int], StepKey] = field(default_factory=dict)
    read: dict[tuple[Memory, int], list[StepKey]] = field(default_factory=dict)
    turns: dict[tuple[int, int], int] = field(default_factory=dict)

    def gpu(self, mine: list[Travel], fused: bool) -> Gpu:
        """The rank's program, given the messages it sends or receives."""
        for copy in self.travels.copies:
            if copy.rank == self.rank:
                self.own(copy)
        for round, together in groupby(mine, key=lambda travel: travel.round):
            self.round(round, list(together))
        return Gpu(
            id=self.rank,
            inputs=self.travels.inputs,
            outputs=self.travels.outputs,
            scratch=self.travels.scratch[self.rank],
            threadblocks=tuple(written(fuse(self.blocks) if fused else self.blocks)),
        )

    def own(self, copy: Copy) -> None:
        """What a rank keeps, in threadblocks of its own that are as many as a connection has lanes."""
        for number, begin in enumerate(range(0, copy.parts, MAX_COUNT)):
            source, target = (Spot(spot.buffer, spot.first + begin) for spot in (copy.source, copy.target))
            size = min(MAX_COUNT, copy.parts - begin)
            self.emit((NOBODY, NOBODY, number % self.lanes), Kind.COPY, size, source, target, None)

    def round(self, round: int, together: list[Travel]) -> None:
        """Sends, then receives, then what was staged."""
        keys = {id(travel): self.key(travel) for travel in together}
        for travel in together:
            if travel.src == self.rank:
                self.emit(keys[id(travel)], Kind.SEND, travel.parts, travel.source, None, round)
        arriving = sorted((t for t in together if t.dst == self.rank), key=lambda t: (t.chunk, t.src))
        for travel in arriving:
            key = keys[id(travel)]
            if travel.stage is not None:
                self.emit(key, Kind.RECEIVE, travel.parts, None, travel.stage, round)
            elif travel.base is None:
                self.emit(key, Kind.RECEIVE, travel.parts, None, travel.target, round)
            else:
                self.emit(key, Kind.RECEIVE_REDUCE_COPY, travel.parts, travel.base, travel.target, round)
        for travel in arriving:
            key = keys[id(travel)]
            if travel.stage is not None and travel.base is not None:
                if travel.base != travel.target:
                    self.emit(key, Kind.COPY, travel.parts, travel.base, travel.target, round)
                self.emit(key, Kind.REDUCE, travel.parts, travel.stage, travel.target, round)
            elif travel.stage is not None:
                self.emit(key, Kind.COPY, travel.parts, travel.stage, travel.target, round)

    def key(self, travel: Travel) -> BlockKey:
        """The threadblock of a message: both ends count the connection's messages and spread them over its lanes."""
        pair = (travel.src, travel.dst)
        turn = self.turns[pair] = self.turns.get(pair, NOBODY) + 1
        distance = (travel.dst - travel.src) % len(self.travels.plan.ranks)
        channel = (distance - 1) // MAX_PEERS * self.lanes + turn % self.lanes
        return (travel.dst, NOBODY, channel) if travel.src == self.rank else (NOBODY, travel.src, channel)

    def emit(
        self, key: BlockKey, kind: Kind, parts: int, source: Spot | None, target: Spot | None, round: int | None
    ) -> None:
        """Add a step, with what it must wait for: the writers of what it reads, and all users of what it writes."""
        reads = list(self.names(source, parts)) if source is not None and kind.reads_src else []
        writes = list(self.names(target, parts)) if target is not None and kind.writes_dst else []
        if kind is Kind.REDUCE:
            reads += writes
        after = [self.written[name] for name in (*reads, *writes) if name in self.written]
        after += [user for name in writes for user in self.read.get(name, ())]
        block = self.blocks.setdefault(key, [])
        step = Step(
            number=0,
            kind=kind,
            src=_BUFFERS[source.buffer] if source else Buffer.INPUT,
            src_offset=source.first if source else NOBODY,
            dst=_BUFFERS[target.buffer] if target else Buffer.OUTPUT,
            dst_offset=target.first if target else NOBODY,
            count=parts,
            round=round,
        )
        here = (key, len(block))
        clock = dict(self.clocks[key, len(block) - 1]) if block else {}
        origin = self.origin(step, reads) if kind is Kind.SEND else None
        block.append(Draft(step, self.needed(key, after, clock), origin))
        clock[key] = here[1]
        self.clocks[here] = clock
        for name in writes:
            self.written[name] = here
            self.read.pop(name, None)
        for name in reads:
            if name not in writes:
                self.read.setdefault(name, []).append(here)

    def origin(self, step: Step, reads: list[tuple[Memory, int]]) -> StepKey | None:
        """The step that received exactly what this one sends, as it is still."""
        writers = {self.written.get(name) for name in reads}
        writer = writers.pop()
        if writer is None or writers:
            return None
        received = self.blocks[writer[0]][writer[1]].step
        same = (received.dst, received.dst_offset, received.count) == (step.src, step.src_offset, step.count)
        return writer if same and received.kind.receives else None

    def needed(self, key: BlockKey, after: Iterable[StepKey], clock: dict[BlockKey, int]) -> list[StepKey]:
        """Those of ``after`` that nothing else implies, latest first; ``clock`` learns what is then known."""
        latest: dict[BlockKey, int] = {}
        for other, number in after:
            if other != key and clock.get(other, NOBODY) < number:
                latest[other] = max(number, latest.get(other, NOBODY))
        waits = [
            (other, number)
            for other, number in latest.items()
            if not any(
                self.clocks[third, when].get(other, NOBODY) >= number
                for third, when in latest.items()
                if third != other
            )
        ]
        for other, number in waits:
            for known, when in self.clocks[other, number].items():
                clock[known] = max(when, clock.get(known, NOBODY))
        return sorted(waits)

    def names(self, spot: Spot, parts: int) -> Iterator[tuple[Memory, int]]:
        """The memory of some parts."""
        place = self.travels.memory(self.rank, spot)
        for part in range(parts):
            yield place.buffer, place.first + part


def messages(travels: Travels) -> Iterator[Travel]:
    """Travels as messages: neighbours in memory that travel together become one, long ones are cut.

    Both ends see the same messages in the same order, by (round, src, dst, chunk).
    """
    together: Travel | None = None
    for travel in travels.travels:
        if together is not None and _joins(together, travel):
            together = replace(together, parts=together.parts + travel.parts)
            continue
        if together is not None:
            yield from _cut(together)
        together = travel
    if together is not None:
        yield from _cut(together)


def _joins(one: Travel, other: Travel) -> bool:
    if (one.round, one.src, one.dst) != (other.round, other.src, other.dst) or one.stage or other.stage:
        return False
    if (
        not (one.alone and other.alone)
        or one.parts + other.parts > MAX_COUNT
        or (one.base is None) != (other.base is None)
    ):
        return False
    pairs = [(one.source, other.source), (one.target, other.target)]
    if one.base is not None and other.base is not None:
        pairs.append((one.base, other.base))
    return all(after.follows(before, one.parts) for before, after in pairs)


def _cut(travel: Travel) -> Iterator[Travel]:
    for begin in range(0, travel.parts, MAX_COUNT):

        def moved(spot: Spot | None, begin: int = begin) -> Spot | None:
            return None if spot is None else Spot(spot.buffer, spot.first + begin)

        source, target = moved(travel.source), moved(travel.target)
        assert source is not None
        assert target is not None
        yield replace(
            travel,
            parts=min(MAX_COUNT, travel.parts - begin),
            source=source,
            target=target,
            base=moved(travel.base),
            stage=moved(travel.stage),
        )
