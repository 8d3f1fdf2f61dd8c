"""What measuring needs of a transport, and the runtime's communicators seen that way.

The probe may not import the runtime; any object with the methods of :class:`Communicator` will do, and the command
line finds one by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from synth.plan.program import Buffer, Message


class Communicator(Protocol):
    """The part of the runtime's communicators that measuring uses."""

    rank: int
    size: int
    memory: Any

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Any, round: int) -> None:
        """Exchange messages that progress together."""

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's few bytes, by rank."""

    def synchronize(self) -> None:
        """Wait until everything issued is done."""


class Transport(Protocol):
    """Sends and receives of given sizes with known data."""

    rank: int
    size: int

    def exchange(self, sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]) -> None:
        """Send and receive (peer, bytes), all at once, and wait for it."""

    def wrong(self, receives: Sequence[tuple[int, int]]) -> int:
        """How many bytes of the last exchange are not what was sent."""

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's few bytes, by rank."""


@dataclass(frozen=True, slots=True)
class _Byte:
    itemsize: int = 1


class OverCommunicator:
    """A transport over one of the runtime's communicators, with buffers of ``most_bytes`` for each peer.

    Memory other than the host's must offer ``upload(array)`` and ``download(array)``.
    """

    def __init__(self, communicator: Communicator, most_bytes: int) -> None:
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.most = most_bytes
        memory = communicator.memory
        upload = getattr(memory, "upload", lambda array: array)
        self._download = getattr(memory, "download", np.asarray)
        self.source = upload(pattern(self.rank, most_bytes))
        self.target = upload(np.zeros(most_bytes * max(1, self.size - 1), dtype=np.uint8))
        self.buffers = memory.bind(self.source, self.target, 0, _Byte())

    def _slot(self, peer: int) -> int:
        return self.most * (peer - (peer > self.rank))

    def exchange(self, sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]) -> None:
        """See :meth:`Transport.exchange`."""
        self.communicator.group(
            [Message(peer, Buffer.INPUT, 0, count) for peer, count in sends],
            [Message(peer, Buffer.OUTPUT, self._slot(peer), count) for peer, count in receives],
            self.buffers,
            0,
        )
        self.communicator.synchronize()

    def wrong(self, receives: Sequence[tuple[int, int]]) -> int:
        """See :meth:`Transport.wrong`."""
        arrived = self._download(self.target)
        bad = 0
        for peer, count in receives:
            start = self._slot(peer)
            bad += int((arrived[start : start + count] != pattern(peer, count)).sum())
        return bad

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Transport.gather`."""
        return self.communicator.gather(data)


def pattern(sender: int, count: int) -> np.ndarray:
    """Bytes that tell sender and place: swapped, shifted or missing data never equals them."""
    return ((np.arange(count, dtype=np.uint32) * 2654435761 + np.uint32(sender * 40503 + 1)) >> 13).astype(np.uint8)
