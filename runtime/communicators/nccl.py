"""NCCL as a transport, whichever binding carries the calls; :mod:`runtime.communicators.watched` does the waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from runtime.buffers import Buffers
from runtime.communicators.base import Call
from runtime.communicators.library import LAUNCH_ORDER, LAUNCH_ORDER_SINCE, Library, exchange, native_call
from runtime.communicators.local import same_color
from runtime.communicators.nccl_part import NcclPart
from runtime.communicators.registered import REGISTER, Registered, enqueue
from runtime.communicators.watched import Watched
from runtime.cuda.captures import check_host_may_wait
from runtime.cuda.memory import CudaMemory
from runtime.place import Place
from runtime.rendezvous import Store, meet
from synth.errors import InvalidUsage, RemoteError
from synth.plan.program import Message


class NcclCommunicator(Watched):
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

    def __init__(self, library: Library, place: Place, store: Store, device: int, deadline: float) -> None:
        cupy: Any = import_module("cupy")
        cupy.cuda.Device(device).use()
        super().__init__(library, place, store, CudaMemory(device), deadline)
        self.registered: Registered | None = None
        wanted = os.environ.get(REGISTER) == "on"
        own = library.unique_id() if place.rank == 0 else b""
        said = meet(store, f"{self._epoch}/id", place, deadline, bytes([wanted]) + own)
        self._check_alike([one[0] == 1 for one in said])
        self.call(None, (), lambda: library.connect(place.size, place.rank, said[0][1:]))
        if wanted:
            self._register(device)

    def _check_alike(self, wanted: Sequence[bool]) -> None:
        if any(wanted) and not all(wanted):
            self._open = False
            raise InvalidUsage(
                f"{REGISTER}: is on at rank {wanted.index(True)} and off at rank {wanted.index(False)}; "
                "it must be the same on all ranks"
            )

    def _register(self, device: int) -> None:
        """Register memory, where every rank can."""
        registered = Registered(self._library, device)
        works = registered.works()
        if all(one == b"1" for one in self.gather(b"%d" % works)):
            self.registered = registered
            self.memory.allocate_scratch, self.memory.direct = registered.allocate, False
        else:
            registered.clear()
            registered.free()

    # ------------------------------------------------------------ exchanges

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        peers = tuple(m.peer for m in receives)
        self.group_on(self._library, sends, receives, buffers, round, peers, self.memory.stream)

    def group_on(
        self,
        library: Library,
        sends: Sequence[Message],
        receives: Sequence[Message],
        buffers: Buffers,
        round: int,
        peers: tuple[int, ...],
        stream: Any,
    ) -> None:
        """:meth:`group` on one of this communicator's libraries and a stream; ``peers`` are ranks of the whole."""
        if self.registered is None:
            issue = partial(exchange, library, sends, receives, buffers, stream.ptr)
            self.call(round, peers, issue, library=library, stream=stream)
            return
        passage = self.registered.through(library, sends, receives, buffers)
        enqueue(passage.before, stream.ptr)
        issue = partial(exchange, library, passage.sends, passage.receives, passage.buffers, stream.ptr)
        self.call(round, peers, issue, library=library, stream=stream)
        enqueue(passage.after, stream.ptr)

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`; one small all-gather and a copy to the host."""
        return self.gather_on(self._library, tuple(range(self.size)), data)

    def gather_on(self, library: Library, members: tuple[int, ...], data: bytes) -> list[bytes]:
        """:meth:`gather` among some ranks, those of one of this communicator's libraries."""
        check_host_may_wait("what the ranks exchange first")
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
        for stream in self.memory.streams:  # nothing may be under way on the whole
            self._finish(stream)
        with self._lock:
            made: Library | None = None

            def start() -> None:
                nonlocal made
                made = self._library.split(color, self.rank)

            self.call(None, (), start)
            if made is not None:
                self._parts.append(made)
                self._settle(None, (), made)
                if self.registered is not None:
                    self.registered.add(made)
        members = same_color(self.gather(b"%12d" % (-1 if color is None else color)), self.rank)
        return None if made is None else NcclPart(self, made, tuple(members))

    @property
    def concurrent(self) -> bool:
        """See :class:`Splitting`: kernels of several communicators need one order of launches on all ranks."""
        return self._library.version() >= LAUNCH_ORDER_SINCE and os.environ.get(LAUNCH_ORDER) == "1"

    # ------------------------------------------------------------ waiting and failing

    def synchronize(self) -> None:
        """See :meth:`Communicator.synchronize`."""
        self._finish(self.memory.stream)

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
                if self.registered is not None:
                    self.registered.clear()
                for library in (*self._parts, self._library):
                    library.destroy()
                if self.registered is not None:
                    self.registered.free()
                self._inside = None
            self._open = False
