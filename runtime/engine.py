"""What every operation of a group goes through: one at a time, agreed schedules, streams, handles, statistics."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import numpy as np

from runtime.arrays import Array
from runtime.buffers import HostMemory
from runtime.communicators import Call, Communicator
from runtime.elements import Reduction
from runtime.handles import HostHandle
from runtime.plans import Source
from runtime.runner import Runner
from runtime.schedules import Operation, Schedules
from runtime.stats import Stats, Tally
from runtime.telemetry import WAIT_SECONDS, report
from runtime.warmup import Progress
from synth.collective import Collective
from synth.errors import InvalidArgument, InvalidUsage, RemoteError, UnmatchedGroup


class Engine:
    """The state of a group and how its operations are carried out; :class:`runtime.group.Group` adds the operations.

    Args:
        communicator: among whom.
        source: where plans come from.
    """

    def __init__(self, communicator: Communicator, source: Source) -> None:
        self._communicator = communicator
        self._source = source
        self._lock = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._pending: list[HostHandle] = []
        self._held: list[tuple[Any, Callable[[], Any]]] = []
        self._recorded: list[Callable[[], Any]] | None = None
        self._stats = Stats(communicator.rank, communicator.memory)
        self._runner = Runner(communicator, source, self._stats)
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

    @property
    def xp(self) -> Any:
        """numpy, or CuPy where the arrays of this group's operations lie on GPUs."""
        return np if isinstance(self._communicator.memory, HostMemory) else import_module("cupy")

    @property
    def communicator(self) -> Communicator:
        """What the group's messages go through."""
        return self._communicator

    def schedules(self, operation: Operation) -> Schedules:
        """What is ready for an operation; the first call finds and agrees on its plan."""
        with self._exclusive():
            return self._runner.ready(operation)

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
        """What ran so far; see :class:`runtime.stats.Stats`. Calls that a GPU has not finished are not timed yet."""
        self._stats.settle()
        return self._stats

    def close(self) -> None:
        """Finish what is pending and release everything. Closing twice is allowed."""
        if not self._closed:
            self._closed = True
            if self._worker is not None:
                self._worker.shutdown(wait=True)
            on_host = not hasattr(self._communicator.memory, "side_stream")
            if not on_host:  # what the GPU has not finished is not timed yet
                with contextlib.suppress(RemoteError, InvalidUsage):
                    self._communicator.synchronize()
                self._communicator.close()
            self._stats.settle()
            reporting = report(self._source, self.ranks, self._stats)
            if on_host:
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
            self._runner.ready(operation)
            return self._stats.reasons[operation.name]

    def warm_up(self, *collectives: str, root: int | None = None, progress: Progress | None = None) -> dict[int, float]:
        """Connect every edge that operations use, before the first of them has to; before recording graphs too.

        Args:
            collectives: names; default alltoall. Their plans are found and agreed on first.
            root: for broadcast and reduce.
            progress: called after each step with how many are done, how many there are, and its seconds.

        Returns:
            seconds of the step in which this rank met each peer; also in ``stats().connected``.

        Raises:
            RemoteError: a rank did not answer within the deadline of a step; it names the rank.
        """
        with self._exclusive():
            for name in collectives or ("alltoall",):
                collective = Collective(name)
                operation = Operation(collective, (root or 0) if collective.rooted else None)
                self._runner.warm_up(operation, progress)
        return dict(self._stats.connected)

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
        shift: int | None = None,
    ) -> Any:
        if op not in set(Reduction):
            raise InvalidArgument(f"op: {op!r} is not known; must be one of {', '.join(Reduction)}", subject="op")
        if operation.collective.reduces:
            _ = source.element.sums_in  # raises for types that cannot be added

        def run() -> Any:
            self._perform(operation, counts, source, target, Reduction(op), shift)
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
        if (why := communicator.may_record()) is not None:
            raise InvalidUsage(f"record: {why}")
        runs: list[Tally] = []
        used: list[Callable[[], Any]] = []

        def recorded() -> Any:
            used.clear()
            self._runner.recorded, self._recorded = runs, used
            try:
                return call()
            finally:
                self._runner.recorded = self._recorded = None

        def followed() -> None:
            communicator.follow()
            for tally in runs:
                self._stats.again(tally)

        return import_module("runtime.cuda.handles").record(recorded, like, memory, followed, used)

    def _issue(self, run: Callable[[], Any], wait: bool, given: Any) -> Any:
        """Run now, or on the group's own thread or stream; operations never overtake each other."""
        memory: Any = self._communicator.memory
        if self._recorded is not None:
            if not wait:
                raise InvalidUsage("record: the call uses wait=False; a graph holds what waits on the caller's stream")
            self._recorded.append(run)  # holds every array of the operation
        if not wait and hasattr(memory, "side_stream"):
            with self._exclusive(), memory.side_stream(given):
                result = run()
                handle = import_module("runtime.cuda.handles").DeviceHandle(result, given, memory, self._check)
            self._held = [held for held in self._held if not held[0].done()]
            self._held.append((handle, run))  # holds every array of the operation until then
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
        shift: int | None = None,
    ) -> None:
        data, root = (source.data, target.data), operation.root or 0
        call = Call(operation.collective, counts, *data, source.element, reduction, root, shift)
        self._runner.perform(operation, call, source.given)


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
