"""An MSCCL XML program as a plan: its messages become transfers, and rounds are read off what waits for what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from synth.collective import EVERY, Collective
from synth.errors import InvalidPlan, PlanError
from synth.formats.msccl_xml import schedule
from synth.formats.msccl_xml.algorithm import Algorithm
from synth.formats.msccl_xml.buffers import Buffers, possible_places
from synth.formats.msccl_xml.messages import Message, Timing, messages
from synth.formats.msccl_xml.verifier import verify
from synth.plan import Chunks, Plan, Predicted, Transfers
from synth.plan.sizes import demand_of
from synth.simulator import simulate
from synth.topology import Topology
from synth.verifier import verify as verify_plan

SEGMENTS = tuple(2**power for power in range(9))
"""Tried where a machine is given and the file does not say; the runtime cuts chunks into slices as it sees fit."""

_SEGMENTS = re.compile(r"\bsegments=([1-9][0-9]{0,3})\b")

Holding = Callable[[int, int], frozenset[int]]
"""The ranks whose contributions a rank holds of a unit."""

Hop = tuple[int, int, int, int]
"""(src, dst, round, reduce)."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A plan and how it was read.

    Attributes:
        plan: valid.
        timing: where its rounds come from.
    """

    plan: Plan
    timing: Timing


def to_plan(
    algorithm: Algorithm,
    *,
    topology: Topology | None = None,
    ranks: Sequence[str] | None = None,
    bytes: int = 10**9,
    segments: int | None = None,
) -> Imported:
    """Translate a right program; of the ways to put its messages into rounds, the cheapest valid one is taken.

    Args:
        algorithm: of a collective that synth knows.
        topology: where it is to run; without one, nothing is priced, and rounds are taken in the order of
            :class:`synth.formats.msccl_xml.messages.Timing`.
        ranks: device ids, default all GPUs of the topology.
        bytes: size at which it is priced.
        segments: of the plan; default what the file's name says, else the cheapest.

    Raises:
        InvalidPlan: the program breaks a rule.
        PlanError: no plan can express it; the message says why.
    """
    report = verify(algorithm)
    if report.violations:
        first = report.violations[0].message
        raise InvalidPlan(f"{first}; 'synth check' lists all {len(report.violations)} violations of the program")
    buffers = possible_places(algorithm)[0]
    if buffers.collective is None:
        raise PlanError(f"plan: what {algorithm.collective!r} promises is not known; say it with --collective")
    devices = _devices(algorithm, topology, ranks)
    program = schedule.Program(algorithm)
    order, _ = schedule.run(program, program.slots * program.longest)
    found, root = messages(program, buffers, order)
    given = _SEGMENTS.search(algorithm.name)
    tried = (segments,) if segments else (int(given[1]),) if given else SEGMENTS if topology else (1,)
    best: tuple[float, Imported] | None = None
    refusal: PlanError | None = None
    for timing in Timing:
        if any(timing not in message.rounds for message in found):
            continue
        try:
            plan = _Translation(algorithm, buffers, root, devices, topology).plan(found, timing)
        except PlanError as error:
            refusal = refusal or error
            continue
        if topology is None:
            return Imported(plan.with_(segments=tried[0]), timing)
        for count in tried:
            priced = _priced(plan.with_(segments=count), topology, bytes)
            assert priced.predicted is not None
            if best is None or priced.predicted.seconds[0] < best[0]:
                best = priced.predicted.seconds[0], Imported(priced, timing)
    if best is None:
        raise refusal or PlanError("plan: the program sends nothing")
    return best[1]


def _devices(algorithm: Algorithm, topology: Topology | None, ranks: Sequence[str] | None) -> tuple[str, ...]:
    devices = tuple(ranks or (topology.gpus if topology else (f"gpu{rank}" for rank in range(algorithm.ranks))))
    if len(devices) != algorithm.ranks:
        raise PlanError(f"plan: the program is for {algorithm.ranks} GPUs, not {len(devices)}; name them with --ranks")
    return devices


def _priced(plan: Plan, topology: Topology, bytes: int) -> Plan:
    seconds = simulate(plan, topology, demand_of(plan, bytes)).seconds
    return plan.with_(predicted=Predicted((bytes,), (seconds,)))


@dataclass(frozen=True)
class _Translation:
    algorithm: Algorithm
    buffers: Buffers
    root: int
    devices: tuple[str, ...]
    topology: Topology | None

    def plan(self, found: list[Message], timing: Timing) -> Plan:
        """The plan with one way of rounds, checked.

        Raises:
            PlanError: it breaks a rule, or a rank would have to keep two versions of a chunk.
        """
        collective = self.collective
        journeys = self.reduced(found, timing) if collective.reduces else self.moved(found, timing)
        chunks: dict[tuple[object, ...], list[int]] = {}
        for unit in sorted(journeys):
            chunks.setdefault((self.block(unit), tuple(sorted(journeys[unit]))), []).append(unit)
        rows = [(*self.block(units[0]), len(units)) for units in chunks.values()]
        hops = [(number, *hop) for number, units in enumerate(chunks.values()) for hop in journeys[units[0]]]
        columns = [np.array(column, dtype=np.int64) for column in zip(*hops, strict=True)]
        plan = Plan(
            collective=collective,
            root=self.root if collective.rooted else None,
            ranks=self.devices,
            topology=self.topology.fingerprint if self.topology else "",
            segments=1,
            denominator=self.buffers.factor,
            chunks=Chunks(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))),
            transfers=Transfers(*columns).sorted(),
            solver={"strategy": "imported", "source": self.algorithm.name, "rounds": timing.value},
        )
        broken = verify_plan(plan, self.topology)
        if broken:
            raise PlanError(f"plan: as a plan the program breaks rule {broken[0].rule}: {broken[0].message}")
        return plan

    @property
    def collective(self) -> Collective:
        assert self.buffers.collective is not None
        return self.buffers.collective

    def block(self, unit: int) -> tuple[int, int]:
        """(origin, target) of a unit: a contribution where data only moves, a chunk of the input where it is added."""
        origin, chunk = divmod(unit, self.buffers.width)
        match self.collective:
            case Collective.ALLTOALL:
                return origin, chunk // self.buffers.factor
            case Collective.REDUCE_SCATTER:
                return EVERY, chunk // self.buffers.factor
            case Collective.REDUCE:
                return EVERY, self.root
            case Collective.ALLREDUCE:
                return EVERY, EVERY
            case _:
                return origin, EVERY

    def moved(self, found: list[Message], timing: Timing) -> dict[int, list[Hop]]:
        """Hops of every unit; of several that bring a rank the same unit, the first counts."""
        first: dict[tuple[int, int], Message] = {}
        for message in found:
            (unit,) = message.value
            if message.dst == unit // self.buffers.width:
                continue
            known = first.get((unit, message.dst))
            if known is None or message.rounds[timing] < known.rounds[timing]:
                first[unit, message.dst] = message
        journeys: dict[int, list[Hop]] = {}
        for (unit, dst), message in first.items():
            origin, target = self.block(unit)
            if origin != target:
                journeys.setdefault(unit, []).append((message.src, dst, message.rounds[timing], 0))
        return journeys

    def reduced(self, found: list[Message], timing: Timing) -> dict[int, list[Hop]]:
        """Hops of every unit, given that a plan's rank has one value of it at a time."""
        width = self.buffers.width
        held: dict[tuple[int, int], frozenset[int]] = {}
        journeys: dict[int, list[Hop]] = {}

        def holding(unit: int, rank: int) -> frozenset[int]:
            return held.get((unit, rank), frozenset((rank,)))

        for round, together in groupby(
            sorted(found, key=lambda message: message.rounds[timing]), key=lambda message: message.rounds[timing]
        ):
            arriving = list(self.arrivals(list(together), holding, round))
            for unit, message, value in sorted(arriving, key=lambda item: len(item[2])):
                has = holding(unit, message.dst)
                if value <= has:
                    continue
                adds = not value & has
                if not adds and not has <= value:
                    raise PlanError(
                        f"plan: rank {message.dst} receives a part of chunk {unit % width} that overlaps what it has; "
                        "a plan has one value per rank and chunk"
                    )
                held[unit, message.dst] = value | has
                journeys.setdefault(unit, []).append((message.src, message.dst, round, int(adds)))
        return journeys

    def arrivals(
        self, together: list[Message], holding: Holding, round: int
    ) -> Iterator[tuple[int, Message, frozenset[int]]]:
        """(unit, message, ranks whose contributions it holds) of one round's messages."""
        width = self.buffers.width
        for message in together:
            units = {part % width for part in message.value}
            if len(units) > 1:
                raise PlanError(f"plan: rank {message.src} adds different chunks, which no collective does")
            unit = units.pop()
            value = frozenset(part // width for part in message.value)
            if value != holding(unit, message.src):
                raise PlanError(
                    f"plan: rank {message.src} sends a value of chunk {unit} in round {round} other than the one it "
                    "has by then; a plan has one value per rank and chunk"
                )
            yield unit, message, value
