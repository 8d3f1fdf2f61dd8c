"""Small values that the ranks of one start of a job leave for each other, until they expire."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, func, select

from server.store.documents import insert_new
from server.store.tables import rendezvous

c = rendezvous.c


def put(
    connection: Connection, caller: str, job: str, key: str, value: bytes, *, now: float, expires_at: float
) -> bytes:
    """Leave a value where none is yet; gives the one that is there now."""
    place = {"caller": caller, "job": job, "key": key}
    mine = _of(caller, job) & (c.key == key)
    connection.execute(delete(rendezvous).where(mine, c.expires_at <= now))
    if insert_new(connection, rendezvous, place | {"value": value, "expires_at": expires_at}):
        return value
    kept = connection.execute(select(c.value).where(mine)).scalar_one_or_none()
    return value if kept is None else bytes(kept)  # none: it expired this very moment


def get(connection: Connection, caller: str, job: str, keys: list[str], *, now: float) -> list[bytes | None]:
    """The values of some keys, None where there is none."""
    found: dict[str, bytes] = {}
    for begin in range(0, len(keys), 500):  # databases limit the parameters of one query
        some = keys[begin : begin + 500]
        query = select(c.key, c.value).where(_of(caller, job), c.key.in_(some), c.expires_at > now)
        found |= {row.key: bytes(row.value) for row in connection.execute(query)}
    return [found.get(key) for key in keys]


def count(connection: Connection, caller: str) -> int:
    """How many values a caller has, expired ones that are still there included."""
    return connection.execute(select(func.count()).where(c.caller == caller)).scalar_one()


def forget(connection: Connection, *, now: float) -> None:
    """Remove what has expired."""
    connection.execute(delete(rendezvous).where(c.expires_at <= now))


def _of(caller: str, job: str) -> ColumnElement[bool]:
    return and_(c.caller == caller, c.job == job)
