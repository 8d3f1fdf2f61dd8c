"""Bearer tokens with scopes, kept hashed in a file; without a file, only this machine may talk to the server.

The file has one token a line: ``name sha256:HEX scope,scope``. Lines that begin with ``#`` are comments. It is read
again when it changes, so taking a line out revokes the token at once. A token is 32 random bytes, which is why one
round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import secrets
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fastapi import Request

from server.errors import Forbidden, HostError, Unauthorized
from synth import documents
from synth.errors import InputError, ServiceUnavailable

log = logging.getLogger("synth.server")


class Scope(StrEnum):
    """What a token allows."""

    PROBE_WRITE = "probe:write"
    """Report a node's topology and telemetry."""
    PLAN_READ = "plan:read"
    """Read everything, check and price plans."""
    PLAN_WRITE = "plan:write"
    """Freeze topologies, start and cancel jobs; includes reading."""
    ADMIN = "admin"
    """Everything."""


_INCLUDED = {
    Scope.PROBE_WRITE: {Scope.PROBE_WRITE},
    Scope.PLAN_READ: {Scope.PLAN_READ},
    Scope.PLAN_WRITE: {Scope.PLAN_WRITE, Scope.PLAN_READ},
    Scope.ADMIN: set(Scope),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the token; ``anybody`` where there are no tokens.
        scopes: what it allows, included ones too.
    """

    name: str
    scopes: frozenset[Scope]


COOKIE = "synth_token"
"""Holds the token of somebody who looks at the pages."""

ANYBODY = Caller("anybody", frozenset(Scope))

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._@-]{1,64})\s+sha256:(?P<hash>[0-9a-f]{64})\s+(?P<scopes>[a-z:,]+)")


class Tokens:
    """The tokens of one file.

    Args:
        path: of the file.

    Raises:
        InputError: it cannot be read or a line is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._callers = read_tokens(path)

    def caller(self, token: str) -> Caller | None:
        """Whose token this is, or None."""
        with self._lock:
            stamp = self._stat()
            if stamp != self._stamp:
                self._callers = read_tokens(self._path)  # a broken file must not keep revoked tokens alive
                self._stamp = stamp
            return self._callers.get(hash_token(token))

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise InputError(f"--tokens {self._path}: cannot be read ({error.strerror})", subject="--tokens") from None
        return found.st_mtime_ns, found.st_size, found.st_ino


def hash_token(token: str) -> str:
    """SHA-256 of a token, hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_tokens(path: Path) -> dict[str, Caller]:
    """Callers by the hash of their token.

    Raises:
        InputError: the file cannot be read, or a line is not ``name sha256:HEX scope,scope``.
    """
    callers: dict[str, Caller] = {}
    for number, line in enumerate(documents.read_bytes(path).decode("utf-8", "replace").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        scopes = [] if match is None else match["scopes"].split(",")
        if match is None or not set(scopes) <= set(Scope):
            raise InputError(
                f"--tokens {path}: line {number} must be 'name sha256:HEX scope,scope' with scopes among "
                f"{', '.join(Scope)}",
                subject=f"{path}:{number}",
            )
        allowed = frozenset().union(*(_INCLUDED[Scope(scope)] for scope in scopes))
        callers[match["hash"]] = Caller(match["name"], allowed)
    return callers


def new_token(name: str, scopes: list[str]) -> tuple[str, str]:
    """Make a token: (the secret, its line for the file).

    Raises:
        InputError: the name or a scope is not usable.
    """
    token = f"synth_{secrets.token_urlsafe(32)}"
    line = f"{name} sha256:{hash_token(token)} {','.join(scopes)}"
    if _LINE.fullmatch(line) is None or not set(scopes) <= set(Scope):
        raise InputError(
            f"--new-token {name}: write NAME=SCOPE,SCOPE with scopes among {', '.join(Scope)}", subject="--new-token"
        )
    return token, line


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require(*needed: Scope) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency that admits callers with every one of these scopes.

    The dependency raises Unauthorized or Forbidden, and HostError where a web page elsewhere may be behind the
    request: without tokens, loopback is the only protection, and a page can point a name of its own at 127.0.0.1.
    """

    async def admit(request: Request) -> Caller:  # on the event loop: a thread would cost more than the check
        return check(request, *needed)

    return admit


def check(request: Request, *needed: Scope) -> Caller:
    """Who asks, if allowed; see :func:`require`."""
    caller = caller_of(request)
    missing = [scope for scope in needed if scope not in caller.scopes]
    if missing:
        raise Forbidden(f"token {caller.name}: needs the scope {missing[0]}", subject=missing[0])
    return caller


def caller_of(request: Request) -> Caller:
    """Who asks, by the request's token.

    Raises:
        Unauthorized: no token, or one that nobody issued.
        HostError: there are no tokens, and the request names another host.
    """
    tokens: Tokens | None = request.app.state.tokens
    if tokens is None:
        name = request.url.hostname or ""
        if request.app.state.loopback_only and not is_loopback(name):
            raise HostError(
                f"host {documents.shorten(name)}: this server answers to localhost only, as it has no tokens",
                subject="Host",
            )
        return ANYBODY
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme and request.method in ("GET", "HEAD"):  # a page; nothing that changes anything takes the cookie
        scheme, token = "bearer", request.cookies.get(COOKIE, "")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("send the header 'Authorization: Bearer TOKEN'", subject="Authorization")
    try:
        caller = tokens.caller(token.strip())
    except InputError as error:
        log.error("%s", error.message)
        raise ServiceUnavailable("the server's token file cannot be read; its log says why", subject="tokens") from None
    if caller is None:
        raise Unauthorized("the token is not known; it may have been revoked", subject="Authorization")
    return caller
