"""NCCL as a transport, whichever binding carries the calls.

With a non-blocking binding (nccl4py) no call waits for a peer: after each group the communicator's state is polled
until its deadline. A watchdog thread looks at the events behind the rounds, so that a kernel that waits for a dead
peer is aborted even when nobody waits for the result. With a blocking binding (CuPy's own) a call can hang inside
NCCL; then the watchdog ends the process with ``EXIT_STUCK``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from runtime.buffers import Buffers
from runtime.communicators.base import Call
from runtime.communicators.local import silent
from runtime.cuda.memory import CudaMemory
from runtime.elements import Reduction
from runtime.place import Place
from runtime.rendezvous import Store, meet, turn
from synth.collective import Collective
from synth.errors import InvalidUsage, RemoteError
from synth.plan.program import Message

EXIT_STUCK = 76
"""Exit status of a process whose blocking NCCL call could not be ended in any other way."""

READY, IN_PROGRESS = 0, 7
_UINT8 = 1
_TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
          "float64": 8, "bfloat16": 9}  # fmt: skip
_OPS = {Reduction.SUM: 0, Reduction.PROD: 1, Reduction.MAX: 2, Reduction.MIN: 3}


class Library(Protocol):
    """One binding of NCCL: raw pointers in, nothing kept."""

    name: str
    blocking: bool

    def unique_id(self) -> bytes:
        """A new id, 128 bytes."""

    def connect(self, size: int, rank: int, unique_id: bytes) -> None:
        """Start joining; done once :meth:`state` is ready."""

    def state(self) -> int:
        """NCCL's result code: 0 ready, 7 in progress, others are failures."""

    def group_start(self) -> None:
        """Open a group."""

    def group_end(self) -> None:
        """Issue the group."""

    def send(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """Send bytes."""

    def receive(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """Receive bytes."""

    def all_reduce(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """NCCL's own."""

    def reduce(self, source: int, target: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        """NCCL's own."""

    def reduce_scatter(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """NCCL's own; ``count`` is one rank's part."""

    def all_gather(self, source: int, target: int, bytes: int, stream: int) -> None:
        """NCCL's own; ``bytes`` is one rank's part."""

    def broadcast(self, source: int, target: int, bytes: int, root: int, stream: int) -> None:
        """NCCL's own."""

    def all_to_all(self, source: int, target: int, bytes: int, stream: int) -> bool:
        """NCCL's own; ``bytes`` is one block; False where this NCCL has none."""

    def abort(self) -> None:
        """End everything at once."""

    def destroy(self) -> None:
        """End in good order."""


class NcclCommunicator:
    """The ranks of one NCCL communicator.

    Args:
        library: the binding.
        place: this rank.
        store: where the ranks meet.
        device: CUDA's number of this rank's GPU.
        deadline: seconds a peer may stay silent.

    Raises:
        RemoteError: a rank does not arrive before the deadline.
    """

    def __init__(self, library: Library, place: Place, store: Store, device: int, deadline: float) -> None:
        cupy: Any = import_module("cupy")
        cupy.cuda.Device(device).use()
        self.name = library.name
        self.rank, self.size, self.deadline = place.rank, place.size, deadline
        self.memory: Any = CudaMemory(device)
        self._cupy, self._library, self._place, self._store = cupy, library, place, store
        self._epoch = turn(store.name)
        self._lock = threading.RLock()
        self.failure: RemoteError | None = None
        self._open = True
        self._inside: tuple[float, int | None, tuple[int, ...]] | None = None
        self._flying: deque[tuple[float, int | None, tuple[int, ...], Any]] = deque()
        self._spare: list[Any] = []
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="synth-watchdog")
        self._watchdog.start()
        own = library.unique_id() if place.rank == 0 else b""
        unique_id = meet(store, f"{self._epoch}/id", place, deadline, own)[0]
        self._call(None, (), lambda: library.connect(place.size, place.rank, unique_id))

    # ------------------------------------------------------------ exchanges

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        size, library, stream = buffers.element.itemsize, self._library, self.memory.stream.ptr
        bases = [part.data.ptr for part in buffers.parts]

        def issue() -> None:
            library.group_start()
            try:
                for m in receives:
                    library.receive(bases[m.buffer] + m.offset * size, m.length * size, m.peer, stream)
                for m in sends:
                    library.send(bases[m.buffer] + m.offset * size, m.length * size, m.peer, stream)
            finally:
                library.group_end()

        self._call(round, tuple(m.peer for m in receives), issue)

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`; one small all-gather and a copy to the host."""
        own = self._cupy.asarray(np.frombuffer(data, dtype=np.uint8))
        both = self._cupy.empty(len(data) * self.size, dtype=np.uint8)
        stream = self._cupy.cuda.get_current_stream()
        self._call(None, (), lambda: self._library.all_gather(own.data.ptr, both.data.ptr, len(data), stream.ptr))
        self._finish(stream)
        host = both.get()
        return [host[peer * len(data) : (peer + 1) * len(data)].tobytes() for peer in range(self.size)]

    def native(self, call: Call) -> bool:
        """See :meth:`Communicator.native`; uneven counts have none in NCCL."""
        issue = self._native(call)
        if issue is None:
            return False
        done = True

        def checked() -> None:
            nonlocal done
            done = issue() is not False

        self._call(0, (), checked)
        return done

    def _native(self, call: Call) -> Any:
        library, stream = self._library, self.memory.stream.ptr
        source, target, size = call.source.data.ptr, call.target.data.ptr, call.element.itemsize
        counts = call.counts
        kind, op = _TYPES.get(call.element.name), _OPS[call.reduction]
        if counts.size > 1 and (counts != counts.flat[0]).any():
            return None
        count = int(counts.flat[0])
        match call.collective:
            case Collective.ALLGATHER:
                return lambda: library.all_gather(source, target, count * size, stream)
            case Collective.BROADCAST:
                given = source if self.rank == call.root else target
                return lambda: library.broadcast(given, target, count * size, call.root, stream)
            case Collective.ALLTOALL:
                return lambda: library.all_to_all(source, target, count * size, stream)
            case Collective.SENDRECV:
                return None
        if kind is None:
            return None
        match call.collective:
            case Collective.ALLREDUCE:
                return lambda: library.all_reduce(source, target, count, kind, op, stream)
            case Collective.REDUCE:
                return lambda: library.reduce(source, target, count, kind, op, call.root, stream)
            case _:
                return lambda: library.reduce_scatter(source, target, count, kind, op, stream)

    # ------------------------------------------------------------ waiting and failing

    def synchronize(self) -> None:
        """See :meth:`Communicator.synchronize`."""
        self._finish(self.memory.stream)

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._open and self.failure is None

    def abort(self, reason: str = "") -> None:
        """See :meth:`Communicator.abort`."""
        if self.is_valid():
            self._fail(RemoteError(f"rank {self.rank} gave up: {reason or 'aborted'}", rank=self.rank))

    def close(self) -> None:
        """See :meth:`Communicator.close`."""
        with self._lock:
            for recording in list(self.memory.recordings):
                recording.release()
            if self.is_valid():
                self._inside = (time.monotonic(), None, ())
                self._library.destroy()
                self._inside = None
            self._open = False

    def _call(self, round: int | None, peers: tuple[int, ...], issue: Any) -> None:
        """Issue something, poll until NCCL has taken it, and leave an event behind it for the watchdog."""
        with self._lock:
            self._check()
            self._inside = (time.monotonic(), round, peers)
            try:
                issue()
                self._settle(round, peers)
            except RemoteError:
                raise
            except Exception as error:  # the bindings' own errors, of several unrelated types
                state = self._library.state() if not self._library.blocking else -1
                failure = RemoteError(f"NCCL failed in round {round}: {error} (state {state})", round=round)
                self._fail(failure)
                raise failure from error
            finally:
                self._inside = None
            if round is not None:
                self.follow(round, peers)

    def follow(self, round: int | None = None, peers: tuple[int, ...] = ()) -> None:
        """Leave an event behind what is on the stream now; the watchdog waits for it."""
        stream = self.memory.stream
        if not stream.is_capturing():
            event = self._spare.pop() if self._spare else self._cupy.cuda.Event(disable_timing=True)
            event.record(stream)
            self._flying.append((time.monotonic(), round, peers, event))
            self._retire()

    def _settle(self, round: int | None, peers: tuple[int, ...]) -> None:
        if self._library.blocking:
            return
        began, turn = time.monotonic(), 0
        while (state := self._library.state()) == IN_PROGRESS:
            turn += 1
            if time.monotonic() - began > self.deadline:
                raise self._lost(round, peers)
            time.sleep(0 if turn < 1000 else 0.0005)
        if state != READY:
            failure = RemoteError(f"NCCL reports failure {state} in round {round}", round=round)
            self._fail(failure)
            raise failure

    def _finish(self, stream: Any) -> None:
        """Wait for a stream without blocking in the driver, so that a failure can be raised."""
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        began, turn = time.monotonic(), 0
        while not event.done:
            turn += 1
            if self.failure is not None:
                break
            if time.monotonic() - began > self.deadline and not self._flying:
                raise self._lost(None, ())
            time.sleep(0 if turn < 1000 else 0.0002)
        self._check(closed_too=False)

    def _retire(self) -> None:
        while self._flying and self._flying[0][3].done:
            self._spare.append(self._flying.popleft()[3])
            if self._flying:  # what follows had to wait for this one
                _, round, peers, event = self._flying[0]
                self._flying[0] = (time.monotonic(), round, peers, event)

    def _watch(self) -> None:
        """Look after rounds on the device, and after calls that do not return."""
        self._cupy.cuda.Device(self.memory.device).use()
        while self._open and self.failure is None:
            time.sleep(min(0.05, self.deadline / 10))
            if (inside := self._inside) is not None:
                if self._library.blocking and time.monotonic() - inside[0] > self.deadline:
                    self._die(inside[1])
                continue
            if self._lock.acquire(blocking=False):
                try:
                    if self.is_valid() and not self.memory.stream.is_capturing():
                        self._retire()
                        if self._flying and time.monotonic() - self._flying[0][0] > self.deadline:
                            self._lost(self._flying[0][1], self._flying[0][2])
                finally:
                    self._lock.release()

    def _lost(self, round: int | None, peers: tuple[int, ...]) -> RemoteError:
        """Ask the survivors who is still there, then fail naming who is not."""
        name = f"{self._epoch}/alive"
        self._store.put(f"{name}/{self.rank}", b"")
        until = time.monotonic() + min(2.0, self.deadline / 2)
        missing = [
            peer
            for peer in range(self.size)
            if self._store.get(f"{name}/{peer}", max(until - time.monotonic(), 0.0)) is None
        ]
        suspect = next((peer for peer in missing if peer in peers), missing[0] if missing else None)
        failure = silent(suspect, round, self.deadline)
        self._fail(failure)
        return failure

    def _fail(self, failure: RemoteError) -> None:
        if self.failure is None:
            self.failure = failure
            if self._library.blocking:
                self._die(failure.round, failure)
            self._library.abort()

    def _die(self, round: int | None, failure: RemoteError | None = None) -> None:
        """End a process that is stuck inside a blocking call; nothing else is safe."""
        why = failure or silent(None, round, self.deadline)
        print(f"synth: {why}; this NCCL binding cannot be interrupted, so rank {self.rank} ends", file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_STUCK)

    def _check(self, *, closed_too: bool = True) -> None:
        if (failure := self.failure) is not None:
            raise RemoteError(failure.message, rank=failure.rank, round=failure.round)
        if closed_too and not self._open:
            raise InvalidUsage("the communicator is closed")
