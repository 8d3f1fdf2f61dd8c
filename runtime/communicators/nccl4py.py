"""NCCL through nccl4py, non-blocking: the binding to use."""

from __future__ import annotations

from copy import copy
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
        self._made_by: Nccl4py | None = None

    def version(self) -> int:
        """See :class:`Library`."""
        return int(self._raw.get_version())

    def unique_id(self) -> bytes:
        """See :class:`Library`."""
        return bytes(self._core.get_unique_id())

    def connect(self, size: int, rank: int, unique_id: bytes) -> None:
        """See :class:`Library`."""
        config = self._core.NCCLConfig(blocking=False)
        self._owner = self._core.Communicator.init(size, rank, self._core.UniqueId.from_bytes(unique_id), config)
        self._comm = self._raw.Comm(self._owner.ptr)

    def split(self, color: int | None, key: int) -> Nccl4py | None:
        """See :class:`Library`; NCCL writes the new communicator's address once the parent is ready."""
        made = self._owner.split(color, key)
        if color is None:
            return None
        child = copy(self)
        child._owner, child._comm, child._made_by = made, None, self
        return child

    def state(self) -> int:
        """See :class:`Library`."""
        if self._comm is None:
            parent = self._made_by.state() if self._made_by is not None else 0
            if parent != 0:
                return parent
            self._comm = self._raw.Comm(self._owner.ptr)
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
        if self.version() < 22800:
            return False
        self._raw.allto_all(source, target, bytes, _UINT8, self._comm, stream)
        return True

    def allocate(self, bytes: int) -> int:
        """See :class:`Library`."""
        return int(self._raw.mem_alloc(bytes))

    def free(self, pointer: int) -> None:
        """See :class:`Library`."""
        self._raw.mem_free(pointer)

    def register(self, pointer: int, bytes: int) -> int | None:
        """See :class:`Library`."""
        return int(self._raw.comm_register(self._comm, pointer, bytes)) or None

    def deregister(self, handle: int) -> None:
        """See :class:`Library`."""
        self._raw.comm_deregister(self._comm, handle)

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
