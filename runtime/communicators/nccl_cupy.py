"""NCCL through CuPy's own binding, for where nccl4py cannot be installed; its calls block."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import Any

_UINT8 = 1
_kept: list[Any] = []
"""Communicators are never collected: CuPy would destroy them, which blocks when a peer is dead."""


class CupyNccl:
    """See :class:`runtime.communicators.nccl.Library`."""

    name = "nccl-cupy"
    blocking = True

    def __init__(self) -> None:
        self._nccl: Any = import_module("cupy.cuda.nccl")
        self._comm: Any = None

    def version(self) -> int:
        """See :class:`Library`."""
        return int(self._nccl.get_version())

    def unique_id(self) -> bytes:
        """See :class:`Library`."""
        return bytes(self._nccl.get_unique_id())

    def connect(self, size: int, rank: int, unique_id: bytes) -> None:
        """See :class:`Library`."""
        self._comm = self._nccl.NcclCommunicator(size, unique_id, rank)
        _kept.append(self._comm)

    def split(self, color: int | None, key: int) -> CupyNccl | None:
        """See :class:`Library`."""
        made = self._comm.commSplit(-1 if color is None else color, key)
        _kept.append(made)
        if color is None:
            return None
        child = copy(self)
        child._comm = made
        return child

    def state(self) -> int:
        """See :class:`Library`."""
        try:
            self._comm.check_async_error()
        except Exception:
            return -1  # any code above 6 is a KeyError in CuPy 14
        return 0

    def group_start(self) -> None:
        """See :class:`Library`."""
        self._nccl.groupStart()

    def group_end(self) -> None:
        """See :class:`Library`."""
        self._nccl.groupEnd()

    def send(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.send(pointer, bytes, _UINT8, peer, stream)

    def receive(self, pointer: int, bytes: int, peer: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.recv(pointer, bytes, _UINT8, peer, stream)

    def all_reduce(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.allReduce(source, target, count, kind, op, stream)

    def reduce(self, source: int, target: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.reduce(source, target, count, kind, op, root, stream)

    def reduce_scatter(self, source: int, target: int, count: int, kind: int, op: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.reduceScatter(source, target, count, kind, op, stream)

    def all_gather(self, source: int, target: int, bytes: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.allGather(source, target, bytes, _UINT8, stream)

    def broadcast(self, source: int, target: int, bytes: int, root: int, stream: int) -> None:
        """See :class:`Library`."""
        self._comm.broadcast(source, target, bytes, _UINT8, root, stream)

    def all_to_all(self, source: int, target: int, bytes: int, stream: int) -> bool:
        """CuPy has no binding for it."""
        return False

    def allocate(self, bytes: int) -> int:
        """CuPy has no binding for it."""
        return 0

    def free(self, pointer: int) -> None:
        """Nothing was allocated."""

    def register(self, pointer: int, bytes: int) -> None:
        """CuPy has no binding for it."""

    def deregister(self, handle: int) -> None:
        """Nothing was registered."""

    def abort(self) -> None:
        """See :class:`Library`."""
        self._comm.abort()

    def destroy(self) -> None:
        """See :class:`Library`."""
        self._comm.destroy()
