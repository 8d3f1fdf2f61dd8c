"""Handles of operations that were started and not waited for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol


class Handle(Protocol):
    """An operation under way."""

    def wait(self) -> Any:
        """The operation's result, once it may be used; raises what the operation raised."""

    def done(self) -> bool:
        """Whether it has ended."""


class HostHandle:
    """An operation on another thread of this process."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def wait(self) -> Any:
        """See :meth:`Handle.wait`."""
        return self._future.result()

    def done(self) -> bool:
        """See :meth:`Handle.done`."""
        return self._future.done()
