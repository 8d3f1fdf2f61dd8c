"""Some of an NCCL communicator's ranks as a communicator of their own, with a stream of their own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from runtime.buffers import Buffers
from runtime.communicators.base import Call
from runtime.communicators.library import Library
from synth.errors import InvalidUsage, RemoteError
from synth.plan.program import Message

if TYPE_CHECKING:
    from runtime.communicators.nccl import NcclCommunicator


class NcclPart:
    """What :meth:`NcclCommunicator.split` gives: it fails, ends and is watched with the whole.

    Args:
        whole: which it is a part of.
        library: the part's own communicator.
        members: ranks in the whole, by rank in the part.
    """

    in_place = True
    concurrent = False

    def __init__(self, whole: NcclCommunicator, library: Library, members: tuple[int, ...]) -> None:
        self._whole, self._library, self._members = whole, library, members
        self.name, self.memory = whole.name, whole.memory
        self.rank, self.size = members.index(whole.rank), len(members)
        cuda: Any = import_module("cupy").cuda
        self._stream: Any = cuda.Stream(non_blocking=True)
        self._ready, self._done = (cuda.Event(disable_timing=True) for _ in range(2))
        self._aside = False

    @property
    def deadline(self) -> float:
        """The whole's."""
        return self._whole.deadline

    @property
    def failure(self) -> RemoteError | None:
        """The whole's."""
        return self._whole.failure

    def fork(self) -> None:
        """Until :meth:`join`, enqueue on the part's own stream, after what the memory's stream holds now."""
        self._ready.record(self.memory.stream)
        self._stream.wait_event(self._ready)
        self._aside = True

    def join(self) -> None:
        """Make the memory's stream wait for what was enqueued since :meth:`fork`."""
        self._done.record(self._stream)
        self.memory.stream.wait_event(self._done)
        self._aside = False

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        peers = tuple(self._members[m.peer] for m in receives)
        stream = self._stream if self._aside else self.memory.stream
        self._whole.group_on(self._library, sends, receives, buffers, round, peers, stream)

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`."""
        return self._whole.gather_on(self._library, self._members, data)

    def native(self, call: Call) -> bool:
        """See :meth:`Communicator.native`."""
        return self._whole.native_on(self._library, call, self.rank)

    def split(self, color: int | None) -> NcclPart | None:
        """Parts are not split again."""
        raise InvalidUsage("a part of a communicator is not split again; split the whole")

    def synchronize(self) -> None:
        """See :meth:`Communicator.synchronize`."""
        self._whole.synchronize()

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._whole.is_valid()

    def abort(self, reason: str = "") -> None:
        """Aborts the whole."""
        self._whole.abort(reason)

    def close(self) -> None:
        """Ends with the whole."""
