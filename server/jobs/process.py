"""The parent's side of a child process: start it, hear from it, stop it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from server.errors import TooMuchWork
from synth.documents import Json
from synth.errors import SynthError

_END = object()


@dataclass(frozen=True, slots=True)
class Crash:
    """The child died without an answer.

    Attributes:
        reason: how, for people.
    """

    reason: str


class Child:
    """One running task. Use as a context manager: leaving it stops the process.

    Args:
        name: of the task.
        task: its argument, JSON.
        memory_bytes: address space it may use; 0 for no limit.
        threads: numeric threads it may use; 0 for the library's default.
    """

    def __init__(self, name: str, task: Json, *, memory_bytes: int = 0, threads: int = 0) -> None:
        environment = dict(os.environ)
        if threads:
            environment |= {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "server.jobs.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C on the server is the server's to handle
        )
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        order = json.dumps({"name": name, "task": task, "memory_bytes": memory_bytes}).encode() + b"\n"
        self._threads = [
            threading.Thread(target=self._write, args=(order,), daemon=True),
            threading.Thread(target=self._read, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def next(self, timeout: float) -> Json | Crash | None:
        """The next message ({progress}, {result} or {error}), a crash, or None when nothing came in time."""
        try:
            message = self._messages.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None
        if message is not _END:
            return message
        return Crash(_describe(self._process.wait()))

    def stop(self) -> None:
        """Kill the process, if it still runs, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def _write(self, order: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(order)
            self._process.stdin.flush()  # and stays open: the child ends when we do

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(_END)


def perform(name: str, task: Json, *, seconds: float, memory_bytes: int) -> Json:
    """Do a task in a child process and wait for it.

    Raises:
        SynthError: whatever the task raised.
        TooMuchWork: it took longer or needed more memory than allowed.
    """
    with Child(name, task, memory_bytes=memory_bytes, threads=1) as child:
        end = time.monotonic() + seconds
        while True:
            message = child.next(end - time.monotonic())
            if message is None:
                raise TooMuchWork(f"body: takes longer than {seconds:g} s to check; send something smaller")
            if isinstance(message, Crash):
                raise TooMuchWork(f"body: the process that checked it {message.reason}; send something smaller")
            if "error" in message:
                raise error_from(message["error"])
            if "result" in message:
                return message["result"]


def error_from(document: Json) -> SynthError:
    """The error that a child process reported, as its own class."""
    if document["kind"] == "memory":
        return TooMuchWork(f"body: {document['message']}; send something smaller")
    module, _, name = document["kind"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    error: SynthError = kind(document["message"], subject=document["subject"])
    return error


def _describe(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
