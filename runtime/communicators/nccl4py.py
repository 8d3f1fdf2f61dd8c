"""NCCL through nccl4py, non-blocking: the binding to use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_UINT8 = 1


class Nccl4py:
    """See :class:`runtime.communicators.nccl.Library`."""

    name = "nccl4py"
    blocking = False

    def __init__(self) -> None:
        self._core: Any = import_module("nccl.core")
        self._raw: Any = import_module("nccl.bindings.nccl")
        self._owner: Any = None
        self._comm: Any = None

    def unique_id(self) -> bytes:
        """See :class:`Library`."""
        return bytes(self._core.get_unique_id())

    def connect(self, size: int, rank: int, unique_id: bytes) -> None:
        """See :class:`Library`."""
        config = self._core.NCCLConfig(blocking=False)
        self._owner = self._core.Communicator.init(size, rank, self._core.UniqueId.from_bytes(unique_id), config)
        self._comm = self._raw.Comm(self._owner.ptr)

    def state(self) -> int:
        """See :class:`Library`."""
        return int(self._raw.comm_get_async_error(self._comm))

    def group_start(self) -> None:
        """See :class:`Library`."""
        self._raw.group_start()

    def group_end(self) -> None:
        """See :class:`Library`."""
        self._raw.group_end()

    def send(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.send(pointer, bytes, _UINT8, peer, self._comm, stream)

    def receive(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.recv(pointer, bytes, _UINT8, peer, self._comm, stream)

    def all_reduce(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.all_reduce(source, target, count, kind, op, self._comm, stream)

    def reduce(self, source: int, target: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.reduce(source, target, count, kind, op, root, self._comm, stream)

    def reduce_scatter(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.reduce_scatter(source, target, count, kind, op, self._comm, stream)

    def all_gather(self, source: int, target: int, bytes: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.all_gather(source, target, bytes, _UINT8, self._comm, stream)

    def broadcast(self, source: int, target: int, bytes: int, root: int, stream: int) -> None:
        """See :class:`Library`."""
        self._raw.broadcast(source, target, bytes, _UINT8, root, self._comm, stream)

    def all_to_all(self, source: int, target: int, bytes: int, stream: int) -> bool:
        """See :class:`Library`."""
        if self._raw.get_version() < 22800:
            return False
        self._raw.allto_all(source, target, bytes, _UINT8, self._comm, stream)
        return True

    def abort(self) -> None:
        """See :class:`Library`."""
        if self._owner is not None:
            self._owner.abort()
            self._owner = None

    def destroy(self) -> None:
        """See :class:`Library`."""
        if self._owner is not None:
            self._owner.destroy()
            self._owner = None
