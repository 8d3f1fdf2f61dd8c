"""Carrying out one call: which schedule, a trial where a plan has to win one, output over input, and counting it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from runtime.buffers import HostMemory
from runtime.choice import Verdict, hold_trial
from runtime.communicators import Call, Communicator
from runtime.counts import input_elements
from runtime.direct import direct_plan
from runtime.executor import Exchanger, execute
from runtime.link_classes import by_class
from runtime.overlap import in_place, native_in_place
from runtime.plans import Source, announce, say, settle
from runtime.pricing import agree_on_choice, alternatives, price
from runtime.schedules import Operation, Prepared, Schedules
from runtime.stats import Stats, Tally
from runtime.warmup import Progress, connect, pairs
from synth.collective import Collective
from synth.errors import InvalidArgument
from synth.plan import Plan
from synth.plan.program import Program
from synth.units import format_seconds

ALIGN_BYTES = 16
"""Pieces begin at multiples of so many bytes where they can, so that a GPU moves 16 bytes per access."""


Marks = list[Any] | None


class Runner:
    """What carries the calls of a group out.

    Args:
        communicator: among whom.
        source: where plans come from.
        stats: where calls are counted.
    """

    def __init__(self, communicator: Communicator, source: Source, stats: Stats) -> None:
        self._communicator = communicator
        self._source = source
        self._stats = stats
        self._schedules: dict[Operation, Schedules] = {}
        self.recorded: list[Tally] | None = None

    def ready(self, operation: Operation) -> Schedules:
        """The operation's schedules; the first call looks for a plan and agrees on it with the other ranks."""
        if operation not in self._schedules:
            plan, reason = settle(self._communicator, self._source, operation)
            schedules = self._choices(operation, plan)
            if schedules.classes is not None:
                reason += f", {schedules.classes.reason}"
            announce(self._communicator.rank, self._communicator.size, operation, reason)
            self._stats.reasons[operation.name] = reason
            self._schedules[operation] = schedules
        return self._schedules[operation]

    def check_place(self, data: Any) -> None:
        """Raise where an array's bytes do not lie in the memory that the group works on."""
        on_host = isinstance(self._communicator.memory, HostMemory)
        if isinstance(data, np.ndarray) != on_host:
            where, wanted = ("on a GPU", "on the host") if on_host else ("on the host", "on the GPU")
            raise InvalidArgument(
                f"the array lies {where}, but transport {self._communicator.name} moves arrays {wanted}; pass one there"
            )

    def perform(self, operation: Operation, call: Call, given: object) -> None:
        """Carry a call out and count it.

        Args:
            operation: what is asked.
            call: on which data.
            given: the caller's array, which says on which stream.
        """
        self.check_place(call.source)
        schedules, memory = self.ready(operation), self._communicator.memory
        bytes = input_elements(operation.collective, call.counts, self._communicator.size) * call.element.itemsize
        planned = schedules.planned(call.counts, bytes, call.element.itemsize)
        with memory.stream_of(given):
            order, call = self._order(schedules, planned, call, bytes)
            for name in order:
                if self._run(name, schedules, planned, call):
                    break
        self._stats.fallbacks += schedules.plan is not None and not name.startswith("plan")

    def warm_up(self, operation: Operation, progress: Progress | None) -> None:
        """Connect the edges of an operation: its plan's, and all pairs where the direct exchange may run."""
        schedules, communicator = self.ready(operation), self._communicator
        began, seconds = time.perf_counter(), self._stats.connected
        if schedules.plan is not None:
            transfers = schedules.plan.plan.transfers
            edges = set(zip(transfers.src.tolist(), transfers.dst.tolist(), strict=True))
            seconds.update(connect(communicator, schedules.classes or communicator, edges, progress))
        if schedules.plan is None or schedules.trial:
            seconds.update(connect(communicator, communicator, pairs(communicator.size), progress))
        took = f"{len(seconds)} peers connected in {format_seconds(time.perf_counter() - began)}"
        say(communicator.rank, communicator.size, operation, took)

    # ------------------------------------------------------------ inside

    def _run(self, name: str, schedules: Schedules, planned: Prepared | None, call: Call) -> bool:
        """Run one candidate, counted and, where it is this call's turn, timed; False where it cannot."""
        prepared = None if name == "native" else schedules.direct if name == "direct" or planned is None else planned
        program = None if prepared is None else self._program(prepared, call)
        if not self._source.statistics:
            return self._go(schedules, prepared, program, call, None)
        stats, memory, operation = self._stats, self._communicator.memory, schedules.name
        marks = [memory.now()] if memory.timing(stats.calls(operation, name)) else None
        if not self._go(schedules, prepared, program, call, marks):
            memory.recycle(marks or ())
            return False
        tally = stats.tally(operation, name, len(call.source), program, call.element.itemsize)
        if self.recorded is not None and self._capturing():
            self.recorded.append(tally)  # counted when the graph runs
        else:
            tally.count()
        if marks is not None:
            marks.append(memory.now())
            stats.timed(tally, marks)
        return True

    def _capturing(self) -> bool:
        """Whether a graph is being recorded."""
        stream = getattr(self._communicator.memory, "stream", None)
        return stream is not None and bool(stream.is_capturing())

    def _go(
        self, schedules: Schedules, prepared: Prepared | None, program: Program | None, call: Call, marks: Marks
    ) -> bool:
        if prepared is None or program is None:
            return self._native(call)
        return self._follow(schedules, prepared, program, call, marks)

    def _native(self, call: Call) -> bool:
        communicator = self._communicator
        if call.shift is not None:
            part = min(len(call.source), len(call.target))
            fits = native_in_place(call.collective, communicator.rank, part, call.shift)
            if not (fits and getattr(communicator, "in_place", False)):
                call = replace(call, source=communicator.memory.stage(call.source), shift=None)
        return communicator.native(call)

    def _follow(self, schedules: Schedules, prepared: Prepared, program: Program, call: Call, marks: Marks) -> bool:
        """Execute a program; where the output lies over the input, without a copy of the input if it can."""
        communicator, source = self._communicator, call.source
        exchanger: Exchanger = communicator
        if schedules.classes is not None and schedules.classes.plan is prepared.plan:
            exchanger = schedules.classes
        if call.shift is not None:
            apart, rest = divmod(call.shift, call.element.itemsize)
            fitting = in_place(program, apart) if rest == 0 else None
            if fitting is None:
                source = communicator.memory.stage(source)
            else:
                program = fitting
        execute(exchanger, program, source, call.target, call.element, call.reduction, marks)
        return True

    def _program(self, prepared: Prepared, call: Call) -> Program:
        return prepared.program(call.counts, max(1, ALIGN_BYTES // call.element.itemsize))

    def _order(
        self, schedules: Schedules, planned: Prepared | None, call: Call, bytes: int
    ) -> tuple[tuple[str, ...], Call]:
        """What to run: the first of these that can carry the call out; a plan may have to win a trial before.

        The call comes back with a copy of its input where a trial wrote over it.
        """
        if planned is None:
            return (("direct",) if schedules.forced == "direct" else ("native", "direct")), call
        name = planned.name
        if schedules.forced is not None or not schedules.trial:
            return (name,), call
        even = call.counts.size < 2 or bool((call.counts == call.counts.flat[0]).all())
        kind = (call.element.name, call.reduction) if call.collective.reduces else None
        key = (bytes.bit_length(), name, even, kind)
        if key not in schedules.verdicts:
            if self._capturing():
                return (name,), call  # nothing can be timed while a graph is recorded
            if call.shift is not None:
                call = replace(call, source=self._communicator.memory.stage(call.source), shift=None)
            schedules.verdicts[key] = self._try_out(schedules, planned, call, bytes)
        return schedules.verdicts[key].order, call

    def _try_out(self, schedules: Schedules, planned: Prepared, call: Call, bytes: int) -> Verdict:
        def carry_out(prepared: Prepared) -> bool:
            return self._follow(schedules, prepared, self._program(prepared, call), call, None)

        candidates: dict[str, Callable[[], bool]] = {
            "native": lambda: self._communicator.native(call),
            "direct": lambda: carry_out(schedules.direct),
            planned.name: lambda: carry_out(planned),
        }
        verdict = hold_trial(self._communicator, schedules.name, bytes, candidates)
        self._stats.trials.append(verdict)
        say(self._communicator.rank, self._communicator.size, schedules.operation, verdict.reason)
        return verdict

    def _choices(self, operation: Operation, plan: Plan | None) -> Schedules:
        rank, size, source = self._communicator.rank, self._communicator.size, self._source
        if plan is None:
            return Schedules(operation, rank, size, None)
        topology, environment = source.topology, source.environment
        others: tuple[Plan, ...] = ()
        pricing = None
        if operation.collective is Collective.ALLTOALL and topology is not None:
            others = alternatives(environment.plan_files if environment is not None else (), plan, topology)
            pricing = price((plan, *others), direct_plan(operation.collective, size), topology)
        trial, pricing = agree_on_choice(self._communicator, source.trial, pricing)
        if pricing is None:
            others = ()
        classes = by_class(self._communicator, plan, topology, source.ranks, os.environ)
        return Schedules(operation, rank, size, plan, others=others, pricing=pricing, trial=trial, classes=classes)
