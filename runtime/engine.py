"""What every operation of a group goes through: one at a time, agreed schedules, streams, handles, statistics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import numpy as np

from runtime.arrays import Array
from runtime.choice import Verdict, hold_trial
from runtime.communicators import Call, Communicator
from runtime.counts import input_elements
from runtime.direct import direct_plan
from runtime.elements import Reduction
from runtime.executor import execute
from runtime.handles import HostHandle
from runtime.plans import Source, announce, say, settle
from runtime.pricing import agree_on_choice, alternatives, price
from runtime.schedules import Operation, Prepared, Schedules
from runtime.stats import Stats
from runtime.telemetry import WAIT_SECONDS, report
from synth.collective import Collective
from synth.errors import InvalidArgument, InvalidUsage, RemoteError, UnmatchedGroup
from synth.plan import Plan
from synth.plan.program import Program

ALIGN_BYTES = 16
"""Pieces begin at multiples of so many bytes where they can, so that a GPU moves 16 bytes per access."""


class Engine:
    """The state of a group and how its operations are carried out; :class:`runtime.group.Group` adds the operations.

    Args:
        communicator: among whom.
        source: where plans come from.
    """

    def __init__(self, communicator: Communicator, source: Source) -> None:
        self._communicator = communicator
        self._source = source
        self._schedules: dict[Operation, Schedules] = {}
        self._lock = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._pending: list[HostHandle] = []
        self._held: list[Any] = []
        self._stats = Stats(rank=communicator.rank)
        self._closed = False

    # ------------------------------------------------------------ about the group

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._communicator.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._communicator.size

    @property
    def ranks(self) -> tuple[str, ...]:
        """The device of each rank, as the topology names it; ``rank0``, ``rank1``, ... where none is known."""
        source = self._source
        if source.ranks or source.topology is not None:
            return (source.ranks or source.topology.gpus)[: self.size]  # type: ignore[union-attr]
        return tuple(f"rank{rank}" for rank in range(self.size))

    def is_valid(self) -> bool:
        """Whether operations can still be called."""
        return not self._closed and self._communicator.is_valid()

    def health_check(self) -> None:
        """Hear from every rank once, on the host.

        Raises:
            RemoteError: naming one that does not answer.
        """
        with self._exclusive():
            self._communicator.gather(b"here")

    def stats(self) -> Stats:
        """What ran so far; see :class:`runtime.stats.Stats`."""
        return self._stats

    def close(self) -> None:
        """Finish what is pending and release everything. Closing twice is allowed."""
        if not self._closed:
            self._closed = True
            if self._worker is not None:
                self._worker.shutdown(wait=True)
            on_host = not hasattr(self._communicator.memory, "side_stream")  # on a GPU a round's time is not known
            reporting = report(self._source, self.ranks, self._stats) if on_host else None
            self._communicator.close()
            if reporting is not None:
                reporting.join(WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and not isinstance(error, InvalidArgument | UnmatchedGroup | RemoteError):
            self._communicator.abort(f"{type(error).__name__}: {error}")
        self.close()

    def prepare(self, collective: str, *, root: int | None = None) -> str:
        """Find and agree on the plan for an operation now instead of at its first call.

        Returns:
            one line: which plan, from where, or why none.
        """
        with self._exclusive():
            operation = Operation(Collective(collective), root)
            self._ready(operation)
            return self._stats.reasons[operation.name]

    # ------------------------------------------------------------ inside

    def _start(
        self,
        operation: Operation,
        counts: np.ndarray,
        source: Array,
        target: Array,
        op: str = "sum",
        wait: bool = True,
        gives: bool = True,
    ) -> Any:
        if op not in set(Reduction):
            raise InvalidArgument(f"op: {op!r} is not known; must be one of {', '.join(Reduction)}", subject="op")
        if operation.collective.reduces:
            _ = source.element.sums_in  # raises for types that cannot be added

        def run() -> Any:
            self._perform(operation, counts, source, target, Reduction(op))
            return target.given if gives else None

        return self._issue(run, wait, source.given)

    def record(self, call: Callable[[], Any], like: Any) -> Any:
        """Record operations on GPU arrays as one CUDA graph; its ``replay()`` runs them again on the same arrays.

        Args:
            call: calls operations of this group with ``wait=True`` and known counts; it is run twice.
            like: one of the arrays it works on.
        """
        memory: Any = self._communicator.memory
        if not hasattr(memory, "held"):
            raise InvalidUsage("record: CUDA graphs need arrays on a GPU; this group works on host memory")
        communicator: Any = self._communicator
        return import_module("runtime.cuda.handles").record(call, like, memory, communicator.follow)

    def _issue(self, run: Callable[[], Any], wait: bool, given: Any) -> Any:
        """Run now, or on the group's own thread or stream; operations never overtake each other."""
        memory: Any = self._communicator.memory
        if not wait and hasattr(memory, "side_stream"):
            with self._exclusive(), memory.side_stream(given):
                result = run()
                handle = import_module("runtime.cuda.handles").DeviceHandle(result, given, memory, self._check)
            self._held = [held for held in self._held if not held.done()] + [handle]  # keeps arrays until then
            return handle
        if wait and not self._pending:
            with self._exclusive():
                return run()
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="synth")

        def guarded() -> Any:
            with self._exclusive():
                return run()

        self._pending = [handle for handle in self._pending if not handle.done()]
        pending = HostHandle(self._worker.submit(guarded))
        self._pending.append(pending)
        return pending.wait() if wait else pending

    def _check(self) -> None:
        if self._closed:
            raise InvalidUsage("the group is closed; call synth.attach() again")
        if (failure := self._communicator.failure) is not None:
            raise RemoteError(failure.message, rank=failure.rank, round=failure.round)

    def _exclusive(self) -> _Exclusive:
        return _Exclusive(self._lock, self._check)

    def _perform(
        self,
        operation: Operation,
        counts: np.ndarray,
        source: Array,
        target: Array,
        reduction: Reduction = Reduction.SUM,
    ) -> None:
        schedules = self._ready(operation)
        began, tried = time.perf_counter(), len(self._stats.trials)
        element = source.element
        bytes = input_elements(operation.collective, counts, self.size) * element.itemsize
        call = Call(operation.collective, counts, source.data, target.data, element, reduction, operation.root or 0)
        planned = schedules.planned(counts, bytes, element.itemsize)
        waited, rounds, name = 0.0, 0, "native"
        with self._communicator.memory.stream_of(source.given):
            order = self._order(schedules, planned, call, bytes)
            if len(self._stats.trials) > tried:
                began = time.perf_counter()  # a trial is no part of the call
            for name in order:
                if name != "native":
                    prepared = schedules.direct if name == "direct" or planned is None else planned
                    program, seconds = self._carry_out(prepared, call)
                    self._stats.record_edges(program, element.itemsize, seconds)
                    waited, rounds = sum(seconds.values()), len(program.rounds)
                    break
                if self._communicator.native(call):
                    break
        self._stats.fallbacks += schedules.plan is not None and not name.startswith("plan")
        self._stats.record(
            operation.name,
            name,
            bytes=len(source.data),
            seconds=time.perf_counter() - began,
            wait=waited,
            rounds=rounds,
        )

    def _order(self, schedules: Schedules, planned: Prepared | None, call: Call, bytes: int) -> tuple[str, ...]:
        """What to run: the first of these that can carry the call out. A plan may have to win a trial before."""
        if planned is None:
            return ("direct",) if schedules.forced == "direct" else ("native", "direct")
        name = planned.name
        if schedules.forced is not None or not schedules.trial:
            return (name,)
        even = call.counts.size < 2 or bool((call.counts == call.counts.flat[0]).all())
        kind = (call.element.name, call.reduction) if call.collective.reduces else None
        key = (bytes.bit_length(), name, even, kind)
        if key not in schedules.verdicts:
            stream = getattr(self._communicator.memory, "stream", None)
            if stream is not None and stream.is_capturing():
                return (name,)  # nothing can be timed while a graph is recorded
            schedules.verdicts[key] = self._try_out(schedules, planned, call, bytes)
        return schedules.verdicts[key].order

    def _try_out(self, schedules: Schedules, planned: Prepared, call: Call, bytes: int) -> Verdict:
        candidates: dict[str, Callable[[], bool]] = {
            "native": lambda: self._communicator.native(call),
            "direct": lambda: bool(self._carry_out(schedules.direct, call)),
            planned.name: lambda: bool(self._carry_out(planned, call)),
        }
        verdict = hold_trial(self._communicator, schedules.operation.name, bytes, candidates)
        self._stats.trials.append(verdict)
        say(self.rank, self.size, schedules.operation, verdict.reason)
        return verdict

    def _carry_out(self, prepared: Prepared, call: Call) -> tuple[Program, dict[int, float]]:
        program = prepared.program(call.counts, max(1, ALIGN_BYTES // call.element.itemsize))
        seconds = execute(self._communicator, program, call.source, call.target, call.element, call.reduction)
        return program, seconds

    def _ready(self, operation: Operation) -> Schedules:
        """The operation's schedules; the first call looks for a plan and agrees on it with the other ranks."""
        if operation not in self._schedules:
            plan, reason = settle(self._communicator, self._source, operation)
            announce(self.rank, self.size, operation, reason)
            self._stats.reasons[operation.name] = reason
            self._schedules[operation] = self._choices(operation, plan)
        return self._schedules[operation]

    def _choices(self, operation: Operation, plan: Plan | None) -> Schedules:
        if plan is None:
            return Schedules(operation, self.rank, self.size, None)
        topology, environment = self._source.topology, self._source.environment
        others: tuple[Plan, ...] = ()
        pricing = None
        if operation.collective is Collective.ALLTOALL and topology is not None:
            others = alternatives(environment.plan_files if environment is not None else (), plan, topology)
            pricing = price((plan, *others), direct_plan(operation.collective, self.size), topology)
        trial, pricing = agree_on_choice(self._communicator, self._source.trial, pricing)
        if pricing is None:
            others = ()
        return Schedules(operation, self.rank, self.size, plan, others=others, pricing=pricing, trial=trial)


class _Exclusive:
    """One operation at a time, on a group that still works."""

    def __init__(self, lock: threading.Lock, check: Callable[[], None]) -> None:
        self._lock, self._check = lock, check

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InvalidUsage("the group is used by two threads at once; use one thread, or wait=False")
        try:
            self._check()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
