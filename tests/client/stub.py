"""A server that answers from a list, for what a real one does not do on request."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Answer = bytes | Callable[[socket.socket], None]
"""Raw bytes to send before closing, or what to do with the connection."""


@dataclass
class Stub:
    url: str
    requests: list[bytes] = field(default_factory=list)


@contextmanager
def stub(*answers: Answer) -> Iterator[Stub]:
    """Give the answers one connection after another; the last again and again."""
    listening = socket.create_server(("127.0.0.1", 0))
    seen = Stub(f"http://127.0.0.1:{listening.getsockname()[1]}")

    def run() -> None:
        number = 0
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                answer = answers[min(number, len(answers) - 1)]
                number += 1
                try:
                    seen.requests.append(_request(connection))
                    answer(connection) if callable(answer) else connection.sendall(answer)
                except OSError:
                    pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def _request(connection: socket.socket) -> bytes:
    """One whole request: a client sends head and body as it likes, often apart."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _more(connection)
    length = re.search(rb"\r\ncontent-length: *(\d+)", data[:end], re.IGNORECASE)
    while len(data) < end + 4 + (int(length[1]) if length else 0):
        data += _more(connection)
    return data


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client left in the middle of its request")
    return data


def reply(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
