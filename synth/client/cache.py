"""The cache on disk: documents by digest, answers by request, shared by all ranks of a node.

Files are written whole or not at all and checked when read, so a full disk, a crash or another rank writing the same
thing at the same time does no harm: a bad entry is removed and fetched again. A cache that cannot be written is no
cache; it is never an error.

::

    documents/<first two digits>/<digest>.json     canonical JSON; the name is its SHA-256
    slices/<digest of the plan>/<rank>.json        a slice carries its own digest
    answers/<digest of the request>.json           which plan answered it, and when
    locks/<digest>.lock                            held while one rank of the node asks the server
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from synth import documents
from synth.errors import InputError, SynthError

try:
    import fcntl
except ImportError:  # not a POSIX system: every rank asks for itself
    fcntl = None  # type: ignore[assignment]

LOCK_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Which plan answered a request.

    Attributes:
        plan: digest.
        etag: of the server's answer, to ask again cheaply.
        server: that gave it.
        asked_at: seconds since 1970.
    """

    plan: str
    etag: str
    server: str
    asked_at: float


class Cache:
    """A folder of documents and answers.

    Args:
        folder: made when first needed; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def document(self, digest: str) -> str | None:
        """The text of a document, checked against its digest; a bad entry is removed."""
        path = self._path("documents", digest[:2], f"{digest}.json")
        text = _read(path)
        if text is not None and documents.digest_text(text) != digest:
            _remove(path)
            return None
        return text

    def put_document(self, digest: str, text: str) -> None:
        """Keep a document whose digest was checked."""
        _write(self._path("documents", digest[:2], f"{digest}.json"), text)

    def slice(self, plan: str, rank: int) -> documents.Json | None:
        """A slice, checked against its own digest and the plan's; a bad entry is removed."""
        path = self._path("slices", plan, f"{rank}.json")
        text = _read(path)
        if text is None:
            return None
        try:
            document = documents.parse(text, subject=str(path))
            check_slice(document, plan, rank)
        except SynthError:
            _remove(path)
            return None
        return document

    def put_slice(self, plan: str, rank: int, document: documents.Json) -> None:
        """Keep a slice that was checked."""
        _write(self._path("slices", plan, f"{rank}.json"), documents.canonical(document))

    def answer(self, key: str) -> Answer | None:
        """Which plan last answered a request; a bad entry is removed."""
        path = self._path("answers", f"{key}.json")
        text = _read(path)
        if text is None:
            return None
        try:
            values = json.loads(text)
            answer = Answer(**values)
            if not (isinstance(answer.plan, str) and isinstance(answer.asked_at, int | float)):
                raise TypeError(values)
        except (ValueError, TypeError, RecursionError):
            _remove(path)
            return None
        return answer

    def put_answer(self, key: str, answer: Answer) -> None:
        """Keep which plan answered a request."""
        _write(self._path("answers", f"{key}.json"), json.dumps(asdict(answer)))

    @contextlib.contextmanager
    def lock(self, key: str, *, seconds: float) -> Iterator[bool]:
        """Hold the lock of a request or a plan, so that one rank of the node asks; whether it was got in time.

        It is released when the process ends, however it ends.
        """
        handle = self._open_lock(key)
        if handle is None:
            yield False
            return
        end = time.monotonic() + seconds
        held = False
        try:
            while not held:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held = True
                except BlockingIOError:
                    if time.monotonic() >= end:
                        break
                    time.sleep(LOCK_POLL_SECONDS)
                except OSError:  # a file system without locks
                    break
            yield held
        finally:
            os.close(handle)

    def _open_lock(self, key: str) -> int | None:
        path = self._path("locks", f"{key}.lock")
        if path is None or fcntl is None:
            return None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None

    def _path(self, *parts: str) -> Path | None:
        return None if self.folder is None else self.folder.joinpath(*parts)


def check_slice(document: documents.Json, plan: str, rank: int) -> None:
    """Check that a slice is whole, of this plan and this rank.

    Raises:
        DocumentError: it is not.
    """
    from synth.plan import load_slice

    _, number, whole = load_slice(document, subject=f"slice {rank}")
    if (whole, number) != (plan, rank):
        fields = documents.Fields(document, f"slice {rank}#")
        raise fields.error("plan", f"is rank {number} of {whole[:12]}, not rank {rank} of {plan[:12]}")


def _read(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        _remove(path)
        return None


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    with contextlib.suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        documents.write(path, text)


def _remove(path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()
