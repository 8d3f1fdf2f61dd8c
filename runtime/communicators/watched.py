"""Waiting for NCCL without ever waiting for ever: deadlines, the watchdog, and how a communicator fails.

With a non-blocking binding no call waits for a peer: after each the communicator's state is polled until its deadline.
A watchdog thread looks at the events behind the rounds, so that a kernel that waits for a dead peer is aborted even
when nobody waits for the result. With a blocking binding a call can hang inside NCCL; then the watchdog ends the
process with ``EXIT_STUCK``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

from runtime.communicators.library import IN_PROGRESS, LAUNCH_ORDER, READY, Library
from runtime.communicators.local import silent
from runtime.cuda.captures import tolerate_captures
from runtime.place import Place
from runtime.rendezvous import Store, turn
from synth.errors import InvalidUsage, RemoteError

EXIT_STUCK = 76
"""Exit status of a process whose blocking NCCL call could not be ended in any other way."""


class Watched:
    """A communicator of NCCL and its parts, as far as waiting and failing goes.

    Args:
        library: the binding.
        place: this rank.
        store: where ranks say that they are still there.
        memory: of this rank's GPU.
        deadline: seconds a peer may stay silent.
    """

    def __init__(self, library: Library, place: Place, store: Store, memory: Any, deadline: float) -> None:
        self.name = library.name
        self.rank, self.size, self.deadline = place.rank, place.size, deadline
        self.memory = memory
        self.failure: RemoteError | None = None
        self._cupy: Any = import_module("cupy")
        self._library, self._store = library, store
        self._epoch = turn(store.name)
        self._lock = threading.RLock()
        self._open = True
        self._inside: tuple[float, int | None, tuple[int, ...]] | None = None
        self._flying: deque[tuple[float, int | None, tuple[int, ...], Any]] = deque()
        self._spare: list[Any] = []
        self._parts: list[Library] = []
        threading.Thread(target=self._watch, daemon=True, name="synth-watchdog").start()

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._open and self.failure is None

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

        Raises:
            InvalidUsage: a graph is being recorded there, and none can be.
            RemoteError: NCCL failed.
        """
        stream = self.memory.stream if stream is None else stream
        if (captured := bool(stream.is_capturing())) and (why := self.may_record()) is not None:
            raise InvalidUsage(f"a graph is being recorded, but {why}")
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
            if round is not None and not captured:  # nobody can ask for an event that is part of a graph
                self._follow(stream, round, peers)

    def follow(self) -> None:
        """After a graph was launched: the watchdog waits for its end as for a round's."""
        with self._lock:
            self._follow(self.memory.stream, None, ())

    def _follow(self, stream: Any, round: int | None, peers: tuple[int, ...]) -> None:
        """Leave an event behind what is on the stream now; the caller holds the lock, as the watchdog does."""
        event = self._spare.pop() if self._spare else self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        self._flying.append((time.monotonic(), round, peers, event))
        self._retire()

    def may_record(self) -> str | None:
        """Why no graph can be recorded, or None."""
        if os.environ.get(LAUNCH_ORDER) == "1":
            return (
                f"{LAUNCH_ORDER} is 1, and NCCL 2.32.3 crashed when a graph was recorded so; unset it to record graphs"
            )
        return None

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
        tolerate_captures()
        while self._open and self.failure is None:
            time.sleep(min(0.05, self.deadline / 10))
            if (inside := self._inside) is not None:
                if self._library.blocking and time.monotonic() - inside[0] > self.deadline:
                    self._die(inside[1])
                continue
            if self._lock.acquire(blocking=False):
                try:
                    if self.is_valid():
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
