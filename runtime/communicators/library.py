"""What the runtime calls of NCCL, whichever binding carries the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from runtime.buffers import Buffers
from runtime.communicators.base import Call
from runtime.elements import Reduction
from synth.collective import Collective
from synth.plan.program import Message

READY, IN_PROGRESS = 0, 7
LAUNCH_ORDER = "NCCL_LAUNCH_ORDER_IMPLICIT"
"""1: NCCL keeps kernels of several communicators in the order the host issued them; known since 2.26. Not set by synth:
eight ranks on one H200 crashed with NCCL 2.32.3 when a graph was recorded under it."""
LAUNCH_ORDER_SINCE = 22600
_TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
          "float64": 8, "bfloat16": 9}  # fmt: skip
_OPS = {Reduction.SUM: 0, Reduction.PROD: 1, Reduction.MAX: 2, Reduction.MIN: 3}


class Library(Protocol):
    """One binding of NCCL: raw pointers in, nothing kept."""

    name: str
    blocking: bool

    def version(self) -> int:
        """Of NCCL, such as 22809."""

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

    def split(self, color: int | None, key: int) -> Library | None:
        """Start making a communicator of the ranks of one color; it is there once both are ready. None: in none."""

    def allocate(self, bytes: int) -> int:
        """Device memory of NCCL's own, which can be registered; 0 where the binding has none."""

    def free(self, pointer: int) -> None:
        """Give it back."""

    def register(self, pointer: int, bytes: int) -> int | None:
        """Register memory that messages are sent from and received in; None where the binding cannot."""

    def deregister(self, handle: int) -> None:
        """Undo it."""

    def abort(self) -> None:
        """End everything at once."""

    def destroy(self) -> None:
        """End in good order."""


def exchange(
    library: Library, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, stream: int
) -> None:
    """Issue the messages of one round as one group."""
    size, bases = buffers.element.itemsize, [part.data.ptr for part in buffers.parts]
    library.group_start()
    try:
        for m in receives:
            library.receive(bases[m.buffer] + m.offset * size, m.length * size, m.peer, stream)
        for m in sends:
            library.send(bases[m.buffer] + m.offset * size, m.length * size, m.peer, stream)
    finally:
        library.group_end()


def native_call(library: Library, call: Call, rank: int, stream: int) -> Callable[[], Any] | None:
    """NCCL's own collective for a call; None where there is none. It gives False where this version has none."""
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
            given = source if rank == call.root else target
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
