"""Small values that the ranks of one start of a job leave for each other at the server."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote, urlencode

from synth.client.http import Connection, Deadline
from synth.documents import Json
from synth.errors import NotFoundError, ServiceError

PIECE_SECONDS = 20.0
"""A wait is cut in pieces of so many seconds, so that a proxy on the way does not end it."""


class Rendezvous:
    """The values of one job.

    Args:
        connection: to the server; its token decides whose job it is.
        job: a name that no other job, and no earlier start of this one, has: letters, digits, ``.``, ``_``, ``-``.
        timeout: seconds a request may take beyond what the server is asked to wait.
    """

    def __init__(self, connection: Connection, job: str, *, timeout: float = 30.0) -> None:
        self.job = job
        self._connection, self._timeout = connection, timeout
        self._path = f"/v1/rendezvous/{quote(job, safe='')}"

    def put(self, key: str, value: bytes) -> None:
        """Leave a value once; it expires after some minutes.

        Raises:
            InputError: another value is there already.
            ServiceError: the server cannot be reached or does not take it.
        """
        body = {"value": base64.b64encode(value).decode()}
        self._connection.ask("PUT", self._at(key), deadline=Deadline.after(self._timeout), body=body)

    def get(self, key: str, *, wait: float = 0.0) -> bytes | None:
        """A value, or None where nobody left it in time.

        Raises:
            ServiceError: the server cannot be reached.
        """
        end = Deadline.after(wait)
        while True:
            left = end.left
            try:
                return _bytes(self._ask(self._at(key), {}, left)["value"])
            except NotFoundError:
                if left <= PIECE_SECONDS:
                    return None

    def collect(self, name: str, ranks: int, *, wait: float = 0.0) -> list[bytes | None]:
        """The values of ``name:0`` and so on, None where nobody left one in time; errors as :meth:`get`."""
        end = Deadline.after(wait)
        while True:
            left = end.left
            values = self._ask(self._path, {"name": name, "ranks": str(ranks)}, left)["values"]
            if None not in values or left <= PIECE_SECONDS:
                return [None if value is None else _bytes(value) for value in values]

    def _at(self, key: str) -> str:
        return f"{self._path}/{quote(key, safe='')}"

    def _ask(self, path: str, query: dict[str, str], wait: float) -> Json:
        piece = min(wait, PIECE_SECONDS)
        path = f"{path}?{urlencode(query | {'wait': f'{piece:.3f}'})}"
        deadline = Deadline.after(self._timeout)
        answer = self._connection.ask("GET", path, deadline=deadline, patience=piece).json()
        if not isinstance(answer, dict) or not {"value", "values"} & set(answer):
            raise ServiceError("the server's answer holds no values; is it a synth server?")
        return answer


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error:
        raise ServiceError("the server's answer holds a value that is no base64; is it a synth server?") from None
