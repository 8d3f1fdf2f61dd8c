"""What the environment says about where plans come from. Every variable is optional.

================= ==================================================================================================
SYNTH_SERVER      address of the server, such as ``https://synth.example:8443``
SYNTH_TOKEN       bearer token; SYNTH_TOKEN_FILE names a file that holds it instead
SYNTH_CA_FILE     certificates to trust instead of the system's
SYNTH_PLAN_FILE   plan files, joined with ``:``; the one that fits a request wins over the server
SYNTH_CACHE       folder of the cache; ``off`` for none; default ``$XDG_CACHE_HOME/synth`` or ``~/.cache/synth``
SYNTH_TIMEOUT     seconds after which a job starts without an answer, default 30
SYNTH_WAIT        seconds of these to wait for a plan that is being made, default 10
================= ==================================================================================================
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from synth import documents
from synth.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where plans come from.

    Attributes:
        server: address, without a slash at the end; None for none.
        token: bearer token.
        ca_file: certificates to trust.
        plan_files: plan files that win over the server.
        cache: folder of the cache; None for none.
        cache_wanted: whether somebody named the cache, so that it is used even without a server.
        timeout: seconds in all.
        wait: seconds to wait for a plan that is being made.
    """

    server: str | None = None
    token: str | None = None
    ca_file: str | None = None
    plan_files: tuple[str, ...] = ()
    cache: Path | None = None
    cache_wanted: bool = False
    timeout: float = 30.0
    wait: float = 10.0

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Read the variables, by default this process's.

        Raises:
            InputError: one cannot be used; the sentence names it.
        """
        given = os.environ if variables is None else variables
        cache = given.get("SYNTH_CACHE", "").strip()
        return cls(
            server=_server(given.get("SYNTH_SERVER", "").strip()),
            token=_token(given),
            ca_file=given.get("SYNTH_CA_FILE") or None,
            plan_files=tuple(filter(None, given.get("SYNTH_PLAN_FILE", "").split(os.pathsep))),
            cache=None if cache.lower() == "off" else Path(cache) if cache else _default_cache(given),
            cache_wanted=bool(cache) and cache.lower() != "off",
            timeout=_seconds(given, "SYNTH_TIMEOUT", 30.0),
            wait=_seconds(given, "SYNTH_WAIT", 10.0),
        )


def _server(text: str) -> str | None:
    if not text:
        return None
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("http", "https") or not rest.strip("/") or any(c.isspace() for c in text):
        raise InputError(
            f"SYNTH_SERVER: {documents.shorten(text)} is no address; write http://HOST:PORT or https://HOST:PORT",
            subject="SYNTH_SERVER",
        )
    return text.rstrip("/")


def _token(given: Mapping[str, str]) -> str | None:
    path = given.get("SYNTH_TOKEN_FILE")
    token = given.get("SYNTH_TOKEN", "")
    if not token and path:
        token = documents.read_bytes(path).decode("utf-8", "replace")
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise InputError("SYNTH_TOKEN: holds characters that no token has", subject="SYNTH_TOKEN")
    return token or None


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not 0 <= value <= 86_400:
        raise InputError(f"{name}: {documents.shorten(text)} is no number of seconds from 0 to 86400", subject=name)
    return value


def _default_cache(given: Mapping[str, str]) -> Path | None:
    base = given.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "synth"
    try:
        return Path.home() / ".cache" / "synth"
    except RuntimeError:  # no home folder: a container with an unknown user
        return None
