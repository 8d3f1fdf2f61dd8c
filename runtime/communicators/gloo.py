"""Gloo on host memory, through torch: ranks that torchrun started and that have no GPU.

Gloo's waits end by themselves when a peer's process ends, and at their timeout otherwise. A rank that gives up writes
why into the store first and closes its connections then, so that the others stop at once and name the same rank.
"""

from __future__ import annotations

import contextlib
import json
import time
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.buffers import Buffers, HostMemory, Memory
from runtime.communicators.base import DEADLINE, Call
from runtime.communicators.local import silent
from runtime.elements import Reduction
from runtime.place import Place
from runtime.rendezvous import TorchStore, meet, turn
from synth.collective import Collective
from synth.errors import InvalidUsage, RemoteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from synth.plan.program import Message

_TAG = 29_002
_ADDED = {"float32", "float64", "int32", "int64"}
"""Types that every version of gloo adds; others are added by our own schedules."""


class GlooCommunicator:
    """Ranks that meet in one of torch's stores; a process group of their own, unknown to ``torch.distributed``.

    Args:
        store: where the ranks meet.
        place: this rank.
        deadline: seconds a peer may stay silent.

    Raises:
        RemoteError: a rank does not arrive before the deadline.
    """

    name = "gloo"

    def __init__(self, store: TorchStore, place: Place, *, deadline: float = DEADLINE) -> None:
        self._torch: Any = import_module("torch")
        distributed: Any = import_module("torch.distributed")
        self.rank, self.size, self.deadline = place.rank, place.size, deadline
        self.memory: Memory = HostMemory()
        self.failure: RemoteError | None = None
        self._open = True
        self._works: list[Any] = []
        """What is under way, held nowhere else: an error that somebody keeps would keep the connections open."""
        self._store = store.under(f"gloo/{turn(store.name)}")
        meet(self._store, "here", place, deadline)
        try:
            self._group = distributed.ProcessGroupGloo(
                self._store.raw, place.rank, place.size, timedelta(seconds=deadline)
            )
        except RuntimeError as error:
            raise RemoteError(f"gloo cannot connect the ranks: {_first_line(error)}") from error

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        self._check()
        for m in receives:
            with self._failing(round, m.peer):  # where the connection is lost already, posting says so
                arriving = self._tensor(buffers.region(m.buffer, m.offset, m.length))
                self._works.append(self._group.recv([arriving], m.peer, _TAG))
        for m in sends:
            with self._failing(round, m.peer):
                leaving = self._tensor(buffers.region(m.buffer, m.offset, m.length))
                self._works.append(self._group.send([leaving], m.peer, _TAG))
        self._wait(round, [m.peer for m in (*receives, *sends)])

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`."""
        self._check()
        mine = self._tensor(np.frombuffer(data, dtype=np.uint8))
        everyone = [self._torch.empty_like(mine) for _ in range(self.size)]
        with self._failing(None, None):
            self._works.append(self._group.allgather([everyone], [mine]))
        self._wait(None, [None])
        return [one.numpy().tobytes() for one in everyone]

    def native(self, call: Call) -> bool:
        """See :meth:`Communicator.native`; what gloo does not have alike in every version is left to our own."""
        start = self._native(call)
        if start is None:
            return False
        self._check()
        with self._failing(0, None):
            self._works.append(start())
        self._wait(0, [None])
        return True

    def _native(self, call: Call) -> Any:
        counts, size = call.counts, call.element.itemsize
        match call.collective:
            case Collective.ALLTOALL | Collective.SENDRECV:
                source, target = self._tensor(call.source), self._tensor(call.target)
                out, back = (counts[self.rank] * size).tolist(), (counts[:, self.rank] * size).tolist()
                return lambda: self._group.alltoall_base(target, source, back, out)
            case Collective.ALLGATHER if bool((counts == counts[0]).all()):
                parts = list(self._tensor(call.target).split(len(call.source))) if len(call.source) else []
                return (lambda: self._group.allgather([parts], [self._tensor(call.source)])) if parts else None
            case Collective.BROADCAST:
                if self.rank == call.root:
                    call.target[:] = call.source
                return lambda: self._group.broadcast([self._tensor(call.target)], self._options("Broadcast", call.root))
            case Collective.ALLREDUCE if call.element.name in _ADDED and call.reduction is Reduction.SUM:
                call.target[:] = call.source
                numbers = self._tensor(call.target.view(call.element.name))
                return lambda: self._group.allreduce([numbers], self._options("Allreduce"))
        return None

    def _options(self, name: str, root: int | None = None) -> Any:
        options = getattr(import_module("torch.distributed"), f"{name}Options")()
        options.timeout = timedelta(seconds=self.deadline)
        if root is not None:
            options.rootRank, options.rootTensor = root, 0
        return options

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._open and self.failure is None

    def abort(self, reason: str = "") -> None:
        """See :meth:`Communicator.abort`."""
        if self.is_valid():
            self._give_up(RemoteError(f"rank {self.rank} gave up: {reason or 'aborted'}", rank=self.rank))

    def close(self) -> None:
        """See :meth:`Communicator.close`; waits, no longer than the deadline, until everybody is done."""
        if self.is_valid():
            with contextlib.suppress(RemoteError):
                meet(self._store, "done", Place(self.rank, self.size, 0, "gloo"), self.deadline)
        self._open = False
        self._group = None

    # ------------------------------------------------------------ waiting and failing

    def _tensor(self, region: np.ndarray) -> Any:
        return self._torch.from_numpy(region if region.flags.writeable else region.copy())

    def _wait(self, round: int | None, peers: list[int | None]) -> None:
        """Wait for what was posted, each with the rank that it takes, if it is one."""
        until = time.monotonic() + self.deadline
        for position, peer in enumerate(peers):
            with self._failing(round, peer):
                self._works[position].wait(timedelta(seconds=max(until - time.monotonic(), 0.001)))
        self._works.clear()

    @contextlib.contextmanager
    def _failing(self, round: int | None, peer: int | None) -> Any:
        """Any error of gloo ends the communicator: its connections are not usable after one."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            failure = self._told() or self._lost(round, peer, time.monotonic() - began, error)
            self._give_up(failure)
            raise failure from error

    def _lost(self, round: int | None, peer: int | None, waited: float, error: RuntimeError) -> RemoteError:
        if peer is None:
            peer = self._absent()
        if waited >= self.deadline * 0.9:
            return silent(peer, round, self.deadline)
        who = "a rank" if peer is None else f"rank {peer}"
        where = "before the first round" if round is None else f"in round {round}"
        return RemoteError(
            f"{who} was lost {where}: {_first_line(error)}; close this group and attach again", rank=peer, round=round
        )

    def _absent(self) -> int | None:
        """Ask the others, where gloo does not say who is missing: the only one that does not answer within 2 s.

        Of several some may be alive, and wait for somebody themselves.
        """
        missing: list[int] = []
        with contextlib.suppress(Exception):
            self._store.put(f"alive/{self.rank}", b"")
            answers = self._store.collect("alive", self.size, min(2.0, self.deadline / 2))
            missing = [peer for peer, answer in enumerate(answers) if answer is None]
        return missing[0] if len(missing) == 1 else None

    def _told(self) -> RemoteError | None:
        """What another rank wrote down when it gave up."""
        with contextlib.suppress(Exception):  # the store may be gone with rank 0
            note = self._store.get("failure", 0.0)
            if note is not None:
                message, rank, round, teller = json.loads(note)
                said = message if teller == rank else f"{message} (says rank {teller})"
                return RemoteError(said, rank=rank, round=round)
        return None

    def _give_up(self, failure: RemoteError) -> None:
        self.failure = failure
        with contextlib.suppress(Exception):
            if self._store.get("failure", 0.0) is None:
                self._store.put(
                    "failure", json.dumps([failure.message, failure.rank, failure.round, self.rank]).encode()
                )
        self._works.clear()
        self._group = None  # closes the connections, so the peers' waits end: nothing else holds them

    def _check(self) -> None:
        if not self._open:
            raise InvalidUsage("the communicator is closed")
        if (failure := self.failure) is not None:
            raise RemoteError(failure.message, rank=failure.rank, round=failure.round)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rpartition("] ")[2][:200] or type(error).__name__
