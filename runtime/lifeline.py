"""Processes that must not outlive the one that started them, and starting them so."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

LIFELINE = "SYNTH_LIFELINE"
"""``pid:start time`` of the process whose end ends this one."""


def hold_on() -> None:
    """End this process soon after the one named by ``SYNTH_LIFELINE`` has ended, however that happened."""
    line = os.environ.get(LIFELINE)
    if line:
        threading.Thread(target=_watch, args=(line,), daemon=True).start()


def _watch(line: str) -> NoReturn:
    pid, _, started = line.partition(":")
    while _start_time(int(pid)) == started:
        time.sleep(0.5)
    os._exit(74)


def _start_time(pid: int) -> str | None:
    """When a process started, in ticks; None when there is none. Tells a process from a later one of the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


@contextlib.contextmanager
def children(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own and end all of it on the way out: on success, error, Ctrl-C or SIGTERM.

    Ranks that call :func:`hold_on` also end when this process is killed.
    """
    line = f"{os.getpid()}:{_start_time(os.getpid())}"
    with _sigterm_raises():
        process = subprocess.Popen(
            list(command),
            env={**(environment or os.environ), LIFELINE: line},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whoever of its session is left


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
