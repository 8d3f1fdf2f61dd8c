"""MPI on host memory (mpi4py), for machines without a GPU.

MPI itself waits for ever for a peer that died. So nothing here blocks: every exchange is started and then polled until
its deadline, and the first rank that gives up tells the others why. :mod:`runtime.communicators.mpi_start` starts MPI.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from runtime.buffers import Buffers, HostMemory, Memory
from runtime.communicators import mpi_start
from runtime.communicators.base import DEADLINE, Call
from runtime.communicators.local import same_color, silent
from runtime.elements import Element
from synth.collective import Collective
from synth.errors import InvalidUsage, RemoteError
from synth.plan.layout import starts
from synth.plan.program import Message

_HELLO, _DATA, _HOST, _ABORT = 29_001, 29_002, 29_003, 29_004


class MpiCommunicator:
    """All ranks of an MPI communicator.

    Args:
        comm: the mpi4py communicator to copy; default COMM_WORLD, starting MPI where nobody did.
        deadline: seconds a peer may stay silent.

    Raises:
        RemoteError: a rank does not arrive before the deadline.
    """

    name = "mpi"
    concurrent = False

    def __init__(self, comm: Any = None, *, deadline: float = DEADLINE) -> None:
        self._mpi = mpi_start.start(deadline)
        world = self._mpi.COMM_WORLD if comm is None else comm
        self.rank: int = world.Get_rank()
        self.size: int = world.Get_size()
        self.deadline = deadline
        self.memory: Memory = HostMemory()
        self._open = True
        self.failure: RemoteError | None = None
        self._unfinished: list[Any] = []
        self._whole: MpiCommunicator | None = None
        self._members = list(range(self.size))  # ranks as errors name them: of the whole
        self._comm = world
        self._exchange_host(b"synth", _HELLO)
        copied, request = world.Idup()
        self._finish([request], [None], None)
        copied.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._comm = copied

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        self._check()
        peers: list[int | None] = [m.peer for m in (*receives, *sends)]
        requests: list[Any] = []
        with self._failing(round, lambda _: peers[len(requests)]):
            for post, messages in ((self._comm.Irecv, receives), (self._comm.Isend, sends)):
                for m in messages:
                    region = buffers.region(m.buffer, m.offset, m.length)
                    requests.append(post([region, self._mpi.BYTE], m.peer, _DATA))
        self._finish(requests, peers, round)

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`."""
        self._check()
        return self._exchange_host(data, _HOST)

    def native(self, call: Call) -> bool:
        """See :meth:`Communicator.native`; half types are added by our own plans, since MPI need not know them."""
        kind = _datatype(self._mpi, call.element, call.collective)
        if kind is None:
            return False
        self._check()
        with self._failing(0):
            request = self._start_native(call, kind)
        self._finish([request], [None], 0)
        return True

    def _start_native(self, call: Call, kind: Any) -> Any:
        comm, counts, source, target = self._comm, call.counts, call.source, call.target
        if call.collective.reduces:
            source, target = source.view(call.element.name), target.view(call.element.name)
            adds = {"sum": self._mpi.SUM, "min": self._mpi.MIN, "max": self._mpi.MAX, "prod": self._mpi.PROD}
            op = adds[call.reduction.value]
            match call.collective:
                case Collective.ALLREDUCE:
                    return comm.Iallreduce([source, kind], [target, kind], op)
                case Collective.REDUCE:
                    return comm.Ireduce([source, kind], [target, kind], op, call.root)
                case _:
                    return comm.Ireduce_scatter([source, kind], [target, kind], counts.tolist(), op)
        size = call.element.itemsize
        match call.collective:
            case Collective.ALLTOALL | Collective.SENDRECV:
                out, back = counts[self.rank] * size, counts[:, self.rank] * size
                return comm.Ialltoallv(_spread(source, out, kind), _spread(target, back, kind))
            case Collective.ALLGATHER:
                return comm.Iallgatherv([source, kind], _spread(target, counts * size, kind))
            case _:
                if self.rank == call.root:
                    target[:] = source
                return comm.Ibcast([target, kind], call.root)

    def split(self, color: int | None) -> MpiCommunicator | None:
        """See :meth:`Splitting.split`; MPI waits in it, so it runs beside a clock once all ranks are here."""
        members = same_color(self.gather(b"%12d" % (-1 if color is None else color)), self.rank)
        made: list[Any] = []

        def start() -> None:
            made.append(self._comm.Split(self._mpi.UNDEFINED if color is None else color, self.rank))

        thread = threading.Thread(target=start, daemon=True)
        thread.start()
        thread.join(self.deadline)
        if not made:
            failure = silent(None, None, self.deadline)
            self._give_up(failure)
            raise failure
        if color is None:
            return None
        part = copy(self)
        made[0].Set_errhandler(self._mpi.ERRORS_RETURN)
        part._comm, part._whole, part._unfinished, part._members = made[0], self, [], members
        part.rank, part.size = made[0].Get_rank(), made[0].Get_size()
        return part

    def fork(self) -> None:
        """Nothing overtakes anything here."""

    def join(self) -> None:
        """Nothing overtakes anything here."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._open and self.failure is None and (self._whole is None or self._whole.is_valid())

    def abort(self, reason: str = "") -> None:
        """See :meth:`Communicator.abort`."""
        if self.is_valid():
            self._give_up(RemoteError(f"rank {self.rank} gave up: {reason or 'aborted'}", rank=self.rank))

    def close(self) -> None:
        """See :meth:`Communicator.close`."""
        self._open = False  # MPI's own Free waits for the peers; the end of MPI frees what is left

    # ------------------------------------------------------------ waiting

    def _exchange_host(self, data: bytes, tag: int) -> list[bytes]:
        mine = np.frombuffer(data, dtype=np.uint8)
        parts = [np.empty_like(mine) for _ in range(self.size)]
        parts[self.rank][:] = mine
        others = [peer for peer in range(self.size) if peer != self.rank]
        requests: list[Any] = []
        with self._failing(None, lambda _: others[len(requests) % len(others)]):
            for post, of in ((self._comm.Irecv, parts), (self._comm.Isend, [mine] * self.size)):
                for peer in others:
                    requests.append(post([of[peer], self._mpi.BYTE], peer, tag))
        self._finish(requests, [*others, *others], None)
        return [part.tobytes() for part in parts]

    def _finish(self, requests: list[Any], peers: list[int | None], round: int | None) -> None:
        """Poll until all requests are done; at the deadline, name a peer that is not."""
        began, turn = time.monotonic(), 0
        self._unfinished = requests  # after a failure, their memory must outlive a message that still arrives
        statuses = [self._mpi.Status() for _ in requests]
        with self._failing(round, lambda error: self._failed(error, statuses, peers)):
            while not self._mpi.Request.Testall(requests, statuses):
                turn += 1
                if turn % 64 == 0 or turn > 2000:
                    self._hear_abort()
                    if time.monotonic() - began > self.deadline:
                        late = [p for p, r in zip(peers, requests, strict=True) if not r.Test()]
                        if late:
                            name = None if late[0] is None else self._members[late[0]]
                            failure = silent(name, round, self.deadline)
                            self._give_up(failure)
                            raise failure
                time.sleep(0 if turn <= 2000 else 0.0005)  # give way to the ranks that share this core

    @contextlib.contextmanager
    def _failing(self, round: int | None, find: Callable[[Any], int | None] = lambda _: None) -> Iterator[None]:
        """Any error of MPI ends the communicator: a peer's process has ended. ``find`` says which, of an error."""
        try:
            yield
        except self._mpi.Exception as error:
            peer = find(error)
            rank = None if peer is None else self._members[peer]
            who = "a rank" if rank is None else f"rank {rank}"
            where = "at the start" if round is None else f"in round {round}"
            said = f"{who} was lost {where}, as MPI's error says ({error}); close this group and attach again"
            failure = RemoteError(said, rank=rank, round=round)
            self._give_up(failure)
            raise failure from error

    def _failed(self, error: Any, statuses: list[Any], peers: list[int | None]) -> int | None:
        """The first peer whose request failed, if the error says that some did."""
        if error.Get_error_class() != self._mpi.ERR_IN_STATUS:
            return None
        fine = (self._mpi.SUCCESS, self._mpi.ERR_PENDING)
        return next((p for p, status in zip(peers, statuses, strict=True) if status.Get_error() not in fine), None)

    def _hear_abort(self) -> None:
        if self._whole is not None:
            return self._whole._hear_abort()
        status, heard = self._mpi.Status(), False
        with contextlib.suppress(self._mpi.Exception):  # of a lost peer the exchange itself will say which
            heard = self._comm.Iprobe(self._mpi.ANY_SOURCE, _ABORT, status)
        if heard:
            note = np.empty(2, dtype=np.int64)
            self._comm.Recv([note, self._mpi.BYTE], status.Get_source(), _ABORT)
            rank, round = (None if value < 0 else int(value) for value in note)
            teller = status.Get_source()
            message = (
                f"rank {teller} gave up"
                if rank == teller
                else f"rank {rank} did not answer {'at the start' if round is None else f'in round {round}'}, "
                f"says rank {teller}; close this group and attach again"
            )
            self.failure, mpi_start.state["broken"] = RemoteError(message, rank=rank, round=round), True
            raise self.failure

    def _give_up(self, error: RemoteError) -> None:
        """Stop using the communicator and tell the peers why."""
        self.failure, mpi_start.state["broken"] = error, True
        if self._whole is not None:
            return self._whole._give_up(error)
        note = np.array([-1 if value is None else value for value in (error.rank, error.round)], dtype=np.int64)
        for peer in range(self.size):
            if peer not in (self.rank, error.rank):
                with contextlib.suppress(self._mpi.Exception):  # lost too
                    self._unfinished.append(self._comm.Isend([note, self._mpi.BYTE], peer, _ABORT))
        with contextlib.suppress(self._mpi.Exception):
            self._mpi.Request.Testall(self._unfinished)  # one push for the notes

    def _check(self) -> None:
        if not self._open:
            raise InvalidUsage("the communicator is closed")
        failure = self.failure or (self._whole.failure if self._whole is not None else None)
        if failure is not None:
            raise RemoteError(failure.message, rank=failure.rank, round=failure.round)
        self._hear_abort()


def _datatype(mpi: Any, element: Element, collective: Collective) -> Any:
    """MPI's type for the elements of a collective, or None where it has none; what only moves is bytes."""
    if not collective.reduces:
        return mpi.BYTE
    if element.name in ("float16", "bfloat16"):  # MPI need not know them, and would not add them in float32
        return None
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    return getattr(mpi, names.get(element.name, element.name.upper() + "_T"), None)


def _spread(data: Any, counts: np.ndarray, kind: Any) -> list[Any]:
    return [data, (counts.tolist(), starts(counts)[:-1].tolist()), kind]
