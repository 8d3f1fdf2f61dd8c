"""Running jobs: each worker thread takes a lease, watches one child process, and writes down how it ended."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from server.errors import SolverCrashed, SolverTimeout
from server.jobs.order import order
from server.jobs.process import Child, Crash
from server.jobs.request import SolveRequest
from server.metrics import Metrics
from server.settings import Settings
from server.store import Database, jobs, plans
from server.store.jobs import Job, State
from server.tasks import error_document
from synth.documents import Json
from synth.errors import ServiceError

log = logging.getLogger("synth.server.jobs")

POLL_SECONDS = 1.0
"""How soon a job is seen that another server queued or lost."""
BEAT_SECONDS = 0.5
"""How often a running job's row is brought up to date, and so how soon it notices a cancel."""
FORGET_SECONDS = 3600.0
"""How often old jobs are removed."""
GRACE_SECONDS = 15.0
"""How long a solver may overrun its time limit before it is stopped."""


class Runner:
    """Worker threads over the jobs of one database.

    Args:
        database: where the jobs are.
        settings: how many workers, leases, attempts.
        metrics: what to count.
        ended: called with a job's id whenever one ended here.
    """

    def __init__(
        self, database: Database, settings: Settings, metrics: Metrics, *, ended: Callable[[str], None]
    ) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._ended = ended
        self._owner = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stopping = threading.Event()
        self._forget_at = time.monotonic()
        self._wake = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._work, name=f"solve-{number}", daemon=True)
            for number in range(settings.workers)
        ]

    def start(self) -> None:
        """Start taking jobs."""
        for thread in self._threads:
            thread.start()

    def notify(self) -> None:
        """Say that there is a new job, or one to cancel."""
        self._wake.release()

    def stop(self) -> None:
        """Stop all solves and give their leases back, so that another server can go on at once."""
        self._stopping.set()
        for _ in self._threads:
            self._wake.release()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                job = self._claim()
                if job is None:
                    self._wake.acquire(timeout=POLL_SECONDS)
                else:
                    self._run(job)
            except ServiceError as error:  # the database is away: the lease runs out, the job is not lost
                log.error("jobs: %s", error)
                self._stopping.wait(POLL_SECONDS)
            except Exception:
                log.exception("jobs: a worker failed and goes on")
                self._stopping.wait(POLL_SECONDS)

    def _claim(self) -> Job | None:
        with self._database.write() as connection:
            if time.monotonic() >= self._forget_at:
                self._forget_at = time.monotonic() + FORGET_SECONDS
                jobs.forget(connection, before=time.time() - self._settings.keep_days * 86_400)
            return jobs.claim(
                connection, owner=self._owner, lease_seconds=self._settings.lease_seconds, now=time.time()
            )

    def _run(self, job: Job) -> None:
        log.info("job %s: attempt %d", job.id, job.attempt)
        if job.cancel:
            self._finish(job, State.CANCELLED)
            return
        if job.attempt > self._settings.attempts:
            crash = SolverCrashed(f"job {job.id}: was started {job.attempt - 1} times and never ended", subject=job.id)
            self._finish(job, State.FAILED, error=error_document(crash))
            return
        request = SolveRequest.from_document(job.request)
        with self._database.read() as connection:
            task = order(connection, request, solver=self._settings.solver)
        with Child("solve_book" if request.book else "solve", task) as child:
            self._watch(job, request, child)

    def _watch(self, job: Job, request: SolveRequest, child: Child) -> None:
        started = time.monotonic()
        deadline = started + request.time_limit + GRACE_SECONDS
        beat, progress = started, None
        while True:
            message = child.next(min(beat + BEAT_SECONDS - time.monotonic(), BEAT_SECONDS))
            if self._stopping.is_set():
                with self._database.write() as connection:
                    jobs.release(connection, job, refund=True)
                log.info("job %s: given back", job.id)
                return
            if isinstance(message, Crash):
                self._crashed(job, message)
                return
            if message is not None and "progress" in message:
                progress = message["progress"]
            elif message is not None and "error" in message:
                self._finish(job, State.FAILED, error=message["error"])
                return
            elif message is not None:
                self._store(job, request, message["result"], time.monotonic() - started)
                return
            if time.monotonic() > deadline:
                late = SolverTimeout(
                    f"job {job.id}: the solver did not end {GRACE_SECONDS:g} s after its limit of "
                    f"{request.time_limit:g} s and was stopped",
                    subject=job.id,
                )
                self._finish(job, State.FAILED, error=error_document(late))
                return
            if time.monotonic() >= beat + BEAT_SECONDS:
                beat = time.monotonic()
                if not self._alive(job, progress):
                    child.stop()
                    self._finish(job, State.CANCELLED)
                    return

    def _alive(self, job: Job, progress: Json | None) -> bool:
        with self._database.write() as connection:
            return jobs.heartbeat(
                connection, job, progress=progress, lease_seconds=self._settings.lease_seconds, now=time.time()
            )

    def _crashed(self, job: Job, crash: Crash) -> None:
        log.error("job %s: the solver %s", job.id, crash.reason)
        if job.attempt < self._settings.attempts:
            with self._database.write() as connection:
                jobs.release(connection, job, refund=False)
            return
        error = SolverCrashed(f"job {job.id}: the solver {crash.reason}, {job.attempt} times", subject=job.id)
        self._finish(job, State.FAILED, error=error_document(error))

    def _store(self, job: Job, request: SolveRequest, result: Json, seconds: float) -> None:
        """Store the plans, which answers which sizes, and the end of the job: all of it or nothing."""
        now = time.time()
        sizes = {"bytes": request.bytes, "min_bytes": request.min_bytes, "max_bytes": request.max_bytes}
        pages = result["pages"] if request.book else [sizes | result]
        with self._database.write() as connection:
            for number, page in enumerate(pages):
                plans.add(
                    connection,
                    digest=page["digest"],
                    topology=request.topology,
                    collective=request.collective,
                    ranks=len(request.ranks),
                    text=page["plan"],
                    now=now,
                )
                plans.add_resolution(
                    connection,
                    plans.Resolution(
                        key=request.page_key(number),
                        shape=request.shape,
                        subject=request.subject,
                        bytes=page["bytes"],
                        min_bytes=page["min_bytes"],
                        max_bytes=page["max_bytes"],
                        plan=page["digest"],
                        bound_seconds=page["bound_seconds"],
                        predicted_seconds=page["predicted_seconds"],
                        gap=page["gap"],
                        created_at=now,
                    ),
                )
            held = jobs.finish(connection, job, State.DONE, now=now, plan=pages[-1]["digest"])
        if held:
            self._metrics.solved(request.collective, seconds, pages[-1]["gap"])
            self._note_end(job, State.DONE)

    def _finish(self, job: Job, state: State, *, error: Json | None = None) -> None:
        with self._database.write() as connection:
            held = jobs.finish(connection, job, state, now=time.time(), error=error)
        if held:
            self._note_end(job, state)

    def _note_end(self, job: Job, state: State) -> None:
        log.info("job %s: %s", job.id, state)
        self._metrics.job_ended(state)
        self._ended(job.id)
