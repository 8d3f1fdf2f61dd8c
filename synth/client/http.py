"""One HTTP exchange at a time: no request without a deadline, retries with backoff, problems as our errors."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from synth import documents, errors
from synth.documents import Json
from synth.errors import InputError, LimitError, ServiceError, ServiceUnavailable, SynthError

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
PASSING = frozenset({429, 500, 502, 503, 504, 507})
"""Statuses that may be gone a moment later."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server.

    Attributes:
        status: 2xx or 304.
        body: decoded from gzip.
        etag: without quotes; empty when there is none.
    """

    status: int
    body: bytes
    etag: str

    def json(self) -> Json:
        """The body as JSON.

        Raises:
            ServiceError: it is none; something else than a synth server answered.
        """
        try:
            return documents.parse(self.body, subject="answer")
        except InputError as error:
            raise ServiceError(f"the server's {error.message}; is it a synth server?") from None


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nothing is tried any more."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(self.at - time.monotonic(), 0.0)


class Connection:
    """Talks to one server.

    Args:
        server: its address.
        token: bearer token.
        ca_file: certificates to trust instead of the system's.
        sleep: how to pause between tries.

    Raises:
        InputError: the certificates cannot be read.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server
        self._token = token
        self._sleep = sleep
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        host = urlsplit(server).hostname or ""
        if host == "localhost" or host.startswith("127.") or host == "::1":
            handlers.append(urllib.request.ProxyHandler({}))
        if server.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_trust(ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline,
        body: Json | None = None,
        etag: str | None = None,
        patience: float = 0.0,
    ) -> Reply:
        """Send one request, again and again while that may help and the deadline is not over.

        All requests of the API are safe to repeat.

        Args:
            method: of HTTP.
            path: with its query.
            deadline: after it nothing is tried again.
            body: sent as JSON.
            etag: of the answer that is at hand.
            patience: seconds beyond the deadline that an answer may take, where the server was asked to wait.

        Raises:
            ServiceUnavailable: nobody answered in time.
            SynthError: the problem the server answered with, as the class of its code.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._once(method, path, Deadline(deadline.at + patience), body, etag)
            except _Passing as passing:
                wait = max(random.uniform(0.5, 1.0) * pause, passing.retry_after)
                if wait >= deadline.left:
                    raise passing.error from None
            self._sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _once(self, method: str, path: str, deadline: Deadline, body: Json | None, etag: str | None) -> Reply:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if etag:
            headers["If-None-Match"] = f'"{etag}"'
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = documents.canonical(body).encode()
        request = urllib.request.Request(f"{self.server}{path}", data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=max(deadline.left, 0.001)) as response:
                content = _read(response, response.headers, deadline)
                return Reply(response.status, content, _tag(response.headers))
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error, deadline)
        except ssl.SSLCertVerificationError as error:
            raise self._unavailable(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise self._unavailable(error.reason) from None
            raise _Passing(self._unavailable(error.reason)) from None
        except (OSError, http.client.HTTPException, zlib.error) as error:
            raise _Passing(self._unavailable(error)) from None

    def _refused(self, error: urllib.error.HTTPError, deadline: Deadline) -> Reply:
        if error.code == 304:
            return Reply(304, b"", _tag(error.headers))
        try:
            problem = documents.parse(_read(error, error.headers, deadline))
        except (SynthError, OSError, http.client.HTTPException, zlib.error):
            problem = {}
        raised = error_of(error.code, problem if isinstance(problem, dict) else {}, self.server)
        if error.code in PASSING and problem.get("code") not in _LASTING:
            after = error.headers.get("Retry-After", "")
            raise _Passing(raised, min(float(after), LONGEST_PAUSE_SECONDS) if after.isdecimal() else 0.0)
        raise raised

    def _unavailable(self, reason: object) -> ServiceUnavailable:
        if isinstance(reason, TimeoutError | socket.timeout):
            text = "no answer in time"
        else:
            text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return ServiceUnavailable(f"server {self.server}: does not answer ({text})", subject=self.server)


_LASTING = frozenset({"solve", "infeasible", "solver-crashed", "solver-timeout", "internal"})
"""Problems of the request, not of the moment, whatever their status."""


class _Passing(Exception):
    """Something that may help to try again; carries the error to raise when the time is over."""

    def __init__(self, error: SynthError, retry_after: float = 0.0) -> None:
        super().__init__(error.message)
        self.error = error
        self.retry_after = retry_after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The server never redirects; following one would carry the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def error_of(status: int, problem: Mapping[str, Json], server: str) -> SynthError:
    """The error that a problem document describes: the class of its code, or the nearest by status."""
    detail = problem.get("detail")
    code = problem.get("code")
    message = str(detail) if detail else f"server {server}: answered with status {status}; is it a synth server?"
    kinds = {kind.code: kind for kind in _every(SynthError)}
    if status in (502, 503, 504) and code not in kinds:
        return ServiceUnavailable(message, subject=server)
    if status in (401, 403) or not code:
        return ServiceError(f"server {server}: {message}" if detail else message, subject=server)
    if code in kinds:
        return kinds[code](message, subject=problem.get("pointer"))
    if str(code).startswith("limit-"):
        return LimitError(message, subject=problem.get("pointer"))
    kind = errors.NotFoundError if status == 404 else InputError if status < 500 else ServiceError
    return kind(message, subject=problem.get("pointer"))


def _every(kind: type[SynthError]) -> list[type[SynthError]]:
    if kind.__module__ != errors.__name__:
        return []
    return [kind, *(below for child in kind.__subclasses__() for below in _every(child))]


def _read(response: Any, headers: Message, deadline: Deadline) -> bytes:
    """The body, decoded, within the deadline and the size of a document."""
    unzip = zlib.decompressobj(wbits=31) if headers.get("Content-Encoding", "") == "gzip" else None
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 20):
        parts.append(part if unzip is None else unzip.decompress(part, documents.MAX_BYTES + 1 - size))
        size += len(parts[-1])
        if size > documents.MAX_BYTES:
            raise LimitError(f"the server's answer is larger than {documents.MAX_BYTES} bytes, the most that is read")
        if not deadline.left:
            raise TimeoutError
    expected = headers.get("Content-Length")
    if unzip is not None and not unzip.eof:
        raise zlib.error("the answer is cut short")
    if unzip is None and expected is not None and expected.isdecimal() and size < int(expected):
        raise http.client.IncompleteRead(b"", int(expected) - size)
    return b"".join(parts)


def _tag(headers: Message) -> str:
    return str(headers.get("ETag", "")).removeprefix("W/").strip('"')


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InputError(
            f"SYNTH_CA_FILE: {ca_file} cannot be used ({error.strerror or error})", subject="SYNTH_CA_FILE"
        ) from None
