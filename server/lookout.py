"""Requests that wait for something in the database: those that wait for the same share one look at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from starlette.concurrency import run_in_threadpool

PAUSE_SECONDS = 0.05
"""Between two looks. What was waited for may have been written by another server on the same database."""


class Lookout:
    """Who waits for what; used on one event loop."""

    def __init__(self) -> None:
        self._looking: dict[Hashable, asyncio.Task[Any]] = {}
        self._waiting: dict[Hashable, int] = {}
        self._stopped = False

    def stop(self) -> None:
        """Let everybody look once more and then go, as the server stops."""
        self._stopped = True

    async def wait(self, what: Hashable, look: Callable[[], tuple[Any, bool]], seconds: float) -> Any:
        """Look again and again until the time is over.

        Args:
            what: equal for those whose ``look`` gives the same.
            look: (what is there now, whether that is all); runs on a thread.
            seconds: at most.

        Returns:
            what was there at the last look.
        """
        found, whole = await run_in_threadpool(look)
        if whole or seconds <= 0 or self._stopped:
            return found
        task = self._looking.get(what)
        if task is None:
            task = self._looking[what] = asyncio.create_task(self._look(look))
        self._waiting[what] = self._waiting.get(what, 0) + 1
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        finally:
            self._waiting[what] -= 1
            if not self._waiting[what]:
                del self._waiting[what]
            if self._looking.get(what) is task and (task.done() or what not in self._waiting):
                del self._looking[what]
                task.cancel()
        return task.result() if done else (await run_in_threadpool(look))[0]

    async def _look(self, look: Callable[[], tuple[Any, bool]]) -> Any:
        while True:
            found, whole = await run_in_threadpool(look)
            if whole or self._stopped:
                return found
            await asyncio.sleep(PAUSE_SECONDS)
