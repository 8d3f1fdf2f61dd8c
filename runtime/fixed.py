"""all_to_all with a fixed capacity: the host never learns how many rows travel, so nothing has to wait for it."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from runtime.arrays import Array, flat
from runtime.buffers import Slots
from runtime.communicators import Call
from runtime.elements import Element
from runtime.engine import Engine
from runtime.schedules import Operation
from synth.collective import Collective
from synth.errors import InvalidArgument

_UNIT = Element("16 bytes", 16)


class Received(NamedTuple):
    """What :meth:`FixedCapacity.all_to_all_fixed` gives, all where the caller's arrays are.

    The three are views of one buffer: rows of one origin lie together, those of the next begin 16 bytes further on.

    Attributes:
        rows: [ranks, capacity, ...] by origin; rows from ``counts`` on are not defined.
        counts: [ranks] int64, rows that arrived from each rank.
        dropped: [ranks] int64, rows that each rank had for this one and that found no room.
    """

    rows: Any
    counts: Any
    dropped: Any


class FixedCapacity(Engine):
    """The operation of a group that knows no counts on the host."""

    def all_to_all_fixed(self, send: Any, send_counts: Any, capacity: int | None = None, *, wait: bool = True) -> Any:
        """At most ``capacity`` rows to every rank; how many is known on the device only.

        Every message is as long as a full block of slots, and the counts travel in it: one exchange, no count on the
        host, nothing to wait for, and a CUDA graph replays it with other counts. **Overflow**: a rank's first
        ``capacity`` rows for a peer are sent, the others are dropped and counted, for the receiver in ``dropped`` and
        in all in :meth:`dropped_rows`. Rows beyond the end of ``send`` count as dropped too; negative counts as none.

        Args:
            send: [rows, ...] rows for rank 0 first, then for rank 1, and so on; without ``capacity``
                [ranks, capacity, ...], the rows for each rank in slots of their own.
            send_counts: [ranks] int32 or int64, where ``send`` is.
            capacity: most rows for any one rank, the same on every rank.
            wait: False returns a handle.

        Returns:
            :class:`Received`.
        """
        source, counts = flat(send, name="send"), flat(send_counts, name="send_counts")
        slots = self._slots(source, counts, capacity)
        full = source.empty((self.size, slots.block // source.element.itemsize))
        matrix = np.full((self.size, self.size), slots.block // _UNIT.itemsize)

        def run() -> Received:
            memory = self._communicator.memory
            with memory.stream_of(source.given):
                blocks = memory.staging(self.size * slots.block)
                memory.fill_slots(source, counts, slots, blocks)
                call = Call(Collective.ALLTOALL, matrix, blocks, full.data, _UNIT)
                self._runner.perform(Operation(Collective.ALLTOALL), call, source.given)
            return _received(full.given, slots, source)

        return self._issue(run, wait, source.given)

    def dropped_rows(self) -> int:
        """Rows that this rank had for others and that found no room, since the group was attached; waits for them."""
        with self._exclusive():
            return self._communicator.memory.dropped()

    def _slots(self, source: Array, counts: Array, capacity: int | None) -> Slots:
        if counts.shape != (self.size,) or counts.element.name not in ("int32", "int64"):
            raise InvalidArgument(
                f"send_counts: is {counts.element.name} of shape {counts.shape}; must be int32 or int64 of shape "
                f"({self.size},)",
                subject="send_counts",
            )
        if type(counts.data) is not type(source.data):
            raise InvalidArgument("send_counts: lies in other memory than send, host or GPU", subject="send_counts")
        self._runner.check_place(source.data)
        if 16 % source.element.itemsize:
            raise InvalidArgument(
                f"send: elements of {source.element.itemsize} bytes do not fill 16 bytes; view it as bytes",
                subject="send",
            )
        if capacity is None:
            if len(source.shape) < 2 or source.shape[0] != self.size:
                raise InvalidArgument(
                    f"send: has shape {source.shape}; without capacity it must be ({self.size}, capacity, ...)",
                    subject="send",
                )
            row = int(np.prod(source.shape[2:], dtype=np.int64)) * source.element.itemsize
            most = source.shape[1]
            _at_least_one(most)
            return Slots(self.size, most, row, stride=most)
        _at_least_one(capacity)
        return Slots(self.size, int(capacity), source.row * source.element.itemsize)


def _at_least_one(capacity: int) -> None:
    if capacity < 1:
        raise InvalidArgument(f"capacity: is {capacity}; must be at least 1", subject="capacity")


def _received(full: Any, slots: Slots, source: Array) -> Received:
    shape = source.shape[2:] if slots.stride else source.shape[1:]
    rows = full[:, : slots.capacity * slots.row // source.element.itemsize]
    notes = full.view(_int64(full))[:, -2:]
    return Received(rows.reshape(slots.peers, slots.capacity, *shape), notes[:, 0], notes[:, 1])


def _int64(array: Any) -> Any:
    """The library's own int64."""
    return np.int64 if isinstance(array.dtype, np.dtype) else sys.modules["torch"].int64
