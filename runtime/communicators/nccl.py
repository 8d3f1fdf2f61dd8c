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
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any
from weakref import WeakSet

import numpy as np

from runtime.buffers import Buffers
from runtime.communicators.base import Call
from runtime.communicators.libnccl import spell
from runtime.communicators.library import (
    IN_PROGRESS,
    LAUNCH_ORDER,
    LAUNCH_ORDER_SINCE,
    READY,
    Library,
    exchange,
    native_call,
)
from runtime.communicators.local import same_color, silent
from runtime.communicators.nccl_part import NcclPart
from runtime.communicators.registered import REGISTER, Registered
from runtime.cuda.memory import CudaMemory
from runtime.place import Place
from runtime.rendezvous import Store, meet, turn
from synth.errors import InvalidUsage, RemoteError
from synth.plan.program import Message

EXIT_STUCK = 76
"""Exit status of a process whose blocking NCCL call could not be ended in any other way."""


_open: WeakSet[NcclCommunicator] = WeakSet()


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

    in_place = True
    """Its native collectives take the outputs over inputs that :func:`runtime.overlap.native_in_place` names."""
    by_class = True
    """Whether link classes deserve communicators of their own: channels per peer are the fewest of any peer."""

    def __init__(self, library: Library, place: Place, store: Store, device: int, deadline: float) -> None:
        cupy: Any = import_module("cupy")
        cupy.cuda.Device(device).use()
        os.environ.setdefault(LAUNCH_ORDER, "1")  # NCCL reads it at its first communicator; others may follow
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
        self._parts: list[Library] = []
        self.registered = Registered(lambda: (library, *self._parts), device)
        if os.environ.get(REGISTER) == "on":
            self.memory.allocate = self.registered.allocate
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="synth-watchdog")
        self._watchdog.start()
        own = library.unique_id() if place.rank == 0 else b""
        unique_id = meet(store, f"{self._epoch}/id", place, deadline, own)[0]
        self.call(None, (), lambda: library.connect(place.size, place.rank, unique_id))
        _open.add(self)
        if len(_open) == 2 and place.rank == 0 and (why := self.may_split()) is not None:
            print(f"synth: several groups in one process: {why}; never use two at a time", file=sys.stderr, flush=True)

    # ------------------------------------------------------------ exchanges

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        library, stream = self._library, self.memory.stream.ptr
        self.call(round, tuple(m.peer for m in receives), lambda: exchange(library, sends, receives, buffers, stream))

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`; one small all-gather and a copy to the host."""
        return self.gather_on(self._library, tuple(range(self.size)), data)

    def gather_on(self, library: Library, members: tuple[int, ...], data: bytes) -> list[bytes]:
        """:meth:`gather` among some ranks, those of one of this communicator's libraries."""
        size = len(members)
        own = self._cupy.asarray(np.frombuffer(data, dtype=np.uint8))
        both = self._cupy.empty(len(data) * size, dtype=np.uint8)
        stream = self._cupy.cuda.get_current_stream()
        self.call(
            None,
            members,
            lambda: library.all_gather(own.data.ptr, both.data.ptr, len(data), stream.ptr),
            library=library,
        )
        self._finish(stream, members)
        host = both.get()
        return [host[peer * len(data) : (peer + 1) * len(data)].tobytes() for peer in range(size)]

    def native(self, call: Call) -> bool:
        """See :meth:`Communicator.native`; uneven counts have none in NCCL."""
        return self.native_on(self._library, call, self.rank)

    def native_on(self, library: Library, call: Call, rank: int) -> bool:
        """:meth:`native` among the ranks of one of this communicator's libraries."""
        issue = native_call(library, call, rank, self.memory.stream.ptr)
        if issue is None:
            return False
        done = True

        def checked() -> None:
            nonlocal done
            done = issue() is not False

        self.call(0, (), checked, library=library)
        return done

    def split(self, color: int | None) -> NcclPart | None:
        """See :meth:`Communicator.split`."""
        self._finish(self.memory.stream)
        with self._lock:
            made: Library | None = None

            def start() -> None:
                nonlocal made
                made = self._library.split(color, self.rank)

            self.call(None, (), start)
            if made is not None:
                self._parts.append(made)
                self._settle(None, (), made)
        members = same_color(self.gather(b"%12d" % (-1 if color is None else color)), self.rank)
        return None if made is None else NcclPart(self, made, tuple(members))

    def may_split(self) -> str | None:
        """Why several communicators would not be safe here, or None: kernels need one order on all ranks."""
        version = self._library.version()
        if version < LAUNCH_ORDER_SINCE:
            return f"NCCL {spell(version)} does not order the kernels of several communicators; 2.26 does"
        if os.environ.get(LAUNCH_ORDER) != "1":
            return f"{LAUNCH_ORDER} is {os.environ.get(LAUNCH_ORDER)!r} and must be 1"
        return None

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
                self.registered.clear()
                for library in (*self._parts, self._library):
                    library.destroy()
                self.registered.free()
                self._inside = None
            self._open = False
            _open.discard(self)

    def call(
        self,
        round: int | None,
        peers: tuple[int, ...],
        issue: Callable[[], Any],
        *,
        library: Library | None = None,
        stream: Any = None,
    ) -> None:
        """Issue something, poll until NCCL has taken it, and leave an event behind it for the watchdog.

        Args:
            round: of the plan; None for what is no round.
            peers: who has to answer, as ranks of the whole communicator.
            issue: what to do.
            library: on which of this communicator's; default its own.
            stream: where it is enqueued; default the memory's.
        """
        with self._lock:
            self._check()
            self._inside = (time.monotonic(), round, peers)
            try:
                issue()
                self._settle(round, peers, library or self._library)
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
                self.follow(round, peers, stream)

    def follow(self, round: int | None = None, peers: tuple[int, ...] = (), stream: Any = None) -> None:
        """Leave an event behind what is on the stream now; the watchdog waits for it."""
        stream = self.memory.stream if stream is None else stream
        if not stream.is_capturing():
            event = self._spare.pop() if self._spare else self._cupy.cuda.Event(disable_timing=True)
            event.record(stream)
            self._flying.append((time.monotonic(), round, peers, event))
            self._retire()

    def _settle(self, round: int | None, peers: tuple[int, ...], library: Library) -> None:
        if library.blocking:
            return
        began, turn = time.monotonic(), 0
        while (state := library.state()) == IN_PROGRESS:
            turn += 1
            if time.monotonic() - began > self.deadline:
                raise self._lost(round, peers)
            time.sleep(0 if turn < 1000 else 0.0005)
        if state != READY:
            failure = RemoteError(f"NCCL reports failure {state} in round {round}", round=round)
            self._fail(failure)
            raise failure

    def _finish(self, stream: Any, peers: tuple[int, ...] = ()) -> None:
        """Wait for a stream without blocking in the driver, so that a failure can be raised."""
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        began, turn = time.monotonic(), 0
        while not event.done:
            turn += 1
            if self.failure is not None:
                break
            if time.monotonic() - began > self.deadline and not self._flying:
                raise self._lost(None, peers)
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
            for library in (*self._parts, self._library):
                library.abort()

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
