"""What every request handler needs, made once when the application starts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from server.auth import Caller, Scope, require
from server.jobs import process
from server.jobs.runner import Runner
from server.lookout import Lookout
from server.metrics import Metrics
from server.settings import Settings
from server.slices import Slices
from server.store import Database
from server.store.topologies import Stored
from synth.documents import Json


class Endings:
    """Lets requests wait for jobs that end in worker threads."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, int] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say on which event loop the requests wait."""
        self._loop = loop

    def waiting(self, job: str) -> int:
        """How many requests wait for a job."""
        return self._waiting.get(job, 0)

    def note(self, job: str) -> None:
        """A job ended; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, job)

    def note_all(self) -> None:
        """Wake everybody, as the server stops; call it on the event loop."""
        for event in self._events.values():
            event.set()

    async def wait(self, job: str, seconds: float) -> None:
        """Wait until a job ended here, or the time is over; it may have ended elsewhere, so ask the database."""
        event = self._events.setdefault(job, asyncio.Event())
        self._waiting[job] = self._waiting.get(job, 0) + 1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        finally:
            self._waiting[job] -= 1
            if not self._waiting[job]:
                self._events.pop(job, None)
                del self._waiting[job]

    def _wake(self, job: str) -> None:
        if job in self._events:
            self._events[job].set()


@dataclass(kw_only=True)
class Context:
    """One server's parts.

    Attributes:
        settings: as given.
        database: tables up to date.
        metrics: of this server.
        runner: of the jobs.
        endings: of jobs, for requests that wait.
        slices: per-rank slices.
        lookout: for requests that wait for other ranks.
        draining: whether the server is about to stop.
        topologies: those asked for often, by digest or fingerprint.
    """

    settings: Settings
    database: Database
    metrics: Metrics
    runner: Runner
    endings: Endings
    slices: Slices
    lookout: Lookout = field(default_factory=Lookout)
    draining: bool = False
    topologies: dict[str, Stored] = field(default_factory=dict)
    _checks: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(2))

    def perform(self, name: str, task: Json) -> Json:
        """Do a task in a child process, two at a time, within the limits for checks."""
        with self._checks:
            return process.perform(
                name, task, seconds=self.settings.check_seconds, memory_bytes=self.settings.check_memory_bytes
            )

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count a request that waits for a plan."""
        self.metrics.waiting.inc()
        try:
            yield
        finally:
            self.metrics.waiting.dec()


async def context_of(request: Request) -> Context:
    """The context of the application that handles a request."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]
Reader = Annotated[Caller, Depends(require(Scope.PLAN_READ))]
Writer = Annotated[Caller, Depends(require(Scope.PLAN_WRITE))]
Probe = Annotated[Caller, Depends(require(Scope.PROBE_WRITE))]
