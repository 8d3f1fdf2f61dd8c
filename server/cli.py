"""``synth serve``: run the HTTP service until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from pydantic import ValidationError

from server import auth
from server.app import create_app
from server.context import Context
from server.settings import Settings
from synth.cli.answer import Answer
from synth.errors import InputError

GRACE_SECONDS = 10
"""How long requests in progress may take to end after the server stopped listening."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one flag for every setting, and those that make a token."""
    for name, field in Settings.model_fields.items():
        if name == "solver":
            continue
        flag = f"--{name.replace('_', '-')}"
        if field.annotation is bool:
            parser.add_argument(flag, action="store_true", default=None, help=field.description)
            continue
        default = "half the cores" if name == "workers" else field.default
        text = field.description if default is None else f"{field.description} (default {default})"
        parser.add_argument(flag, metavar=_metavar(name), default=None, help=text)
    parser.add_argument(
        "--new-token",
        metavar="NAME=SCOPES",
        help="make a token with these scopes (probe:write, plan:read, plan:write, admin; with commas), "
        "append its hash to the file of --tokens, print it once, and end",
    )
    parser.add_argument("--verbose", action="store_true", help="log every request to stderr")


def _metavar(name: str) -> str:
    words = {"host": "ADDRESS", "db": "FILE_OR_URL", "tokens": "FILE"}
    return words.get(name, "FILE" if name.startswith("tls") else "N")


def run(args: argparse.Namespace) -> Answer:
    """Serve, or make a token."""
    settings = read_settings({name: getattr(args, name) for name in Settings.model_fields if name != "solver"})
    if args.new_token is not None:
        return _new_token(args.new_token, settings.tokens)
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    url = serve(settings, access_log=args.verbose, ready=sys.stderr if args.json else sys.stdout)
    return Answer({"url": url, "stopped": True}, "synth serve: stopped")


def read_settings(given: dict[str, Any]) -> Settings:
    """Settings from flags that were given, then ``SYNTH_SERVE_*`` variables, then defaults.

    Raises:
        InputError: one is out of its bounds; the sentence names the flag.
    """
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{'-'.join(str(part) for part in first['loc']).replace('_', '-')}"
        raise InputError(f"{flag} {first['input']}: {first['msg']}", subject=flag) from None
    if settings.tokens is None and not settings.allow_remote and not auth.is_loopback(settings.host):
        raise InputError(
            f"--host {settings.host}: would let anybody on the network in, as there are no tokens; give --tokens FILE, "
            "or say --allow-remote if that is meant",
            subject="--host",
        )
    if (settings.tls_cert is None) != (settings.tls_key is None) or (settings.tls_client_ca and not settings.tls_cert):
        raise InputError("--tls-cert: goes with --tls-key, and --tls-client-ca with both", subject="--tls-cert")
    return settings


def _new_token(text: str, path: Path | None) -> Answer:
    if path is None:
        raise InputError("--new-token: needs --tokens FILE, the file that gets its hash", subject="--new-token")
    name, _, scopes = text.partition("=")
    token, line = auth.new_token(name, scopes.split(","))
    if path.exists():
        auth.read_tokens(path)
    try:
        with open(path, "a", encoding="utf-8", opener=_private) as file:
            file.write(line + "\n")
    except OSError as error:
        raise InputError(f"--tokens {path}: cannot be written ({error.strerror})", subject=str(path)) from None
    return Answer({"name": name, "token": token, "file": str(path)}, token)


def _private(path: str, flags: int) -> int:
    import os

    return os.open(path, flags, 0o600)


class _Server(uvicorn.Server):
    """Uvicorn that says when it is ready, drains on SIGTERM, and exits with 0."""

    def __init__(self, config: uvicorn.Config, *, context: Context, url: str, ready: Any) -> None:
        super().__init__(config)
        self._context = context
        self._url = url
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            print(f"synth serve: listening on {self._url}", file=self._ready, flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}

        def handle(kind: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._drain, kind)

        for kind in before:
            signal.signal(kind, handle)
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _drain(self, kind: int) -> None:
        """First not ready, then, after the time load balancers need to notice, no new connections."""
        if self._context.draining:  # asked twice: now
            self.should_exit = True
            self.force_exit = kind == signal.SIGINT
            return
        self._context.draining = True
        self._context.endings.note_all()
        self._context.lookout.stop()
        asyncio.get_running_loop().call_later(self._context.settings.drain_seconds, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def serve(settings: Settings, *, access_log: bool = False, ready: Any = sys.stdout) -> str:
    """Serve until SIGTERM or Ctrl-C.

    Returns:
        the address it had.

    Raises:
        InputError: the port is taken, the database or a file cannot be used.
    """
    listening = _listen(settings)
    with listening:
        app = create_app(settings)
        host, port = listening.getsockname()[:2]
        scheme = "http" if settings.tls_cert is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=access_log,
                timeout_graceful_shutdown=GRACE_SECONDS,
                server_header=False,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
                ssl_ca_certs=None if settings.tls_client_ca is None else str(settings.tls_client_ca),
                ssl_cert_reqs=ssl.CERT_NONE if settings.tls_client_ca is None else ssl.CERT_REQUIRED,
            )
            config.load()
        except OSError as error:
            raise InputError(f"--tls-cert: cannot be used ({error.strerror or error})", subject="--tls-cert") from None
        server = _Server(config, context=app.state.context, url=url, ready=ready)
        server.run(sockets=[listening])
    return url


def _listen(settings: Settings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, settings.port))
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise InputError(
            f"--port {settings.port}: {settings.host} cannot be listened on ({error.strerror}); "
            "choose another, or 0 for a free one",
            subject="--port",
        ) from None
    return listening
