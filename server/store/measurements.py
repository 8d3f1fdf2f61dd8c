"""What running jobs measured from one GPU to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from server.store.documents import insert_new
from server.store.tables import measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One edge, summed over all reports.

    Attributes:
        src: id of the sending GPU.
        dst: id of the receiving GPU.
        reports: how many named it.
        bytes: moved in all.
        seconds: they took in all.
        latest_bytes_per_s: of the latest report.
        reported_at: when that came, seconds since 1970.
    """

    src: str
    dst: str
    reports: int
    bytes: float
    seconds: float
    latest_bytes_per_s: float
    reported_at: float


def add(connection: Connection, topology: str, edges: Sequence[tuple[str, str, float, float]], *, now: float) -> None:
    """Add (src, dst, bytes, seconds) of one report."""
    c = measurements.c
    for src, dst, moved, seconds in edges:
        key = {"topology": topology, "src": src, "dst": dst}
        fresh = {"latest_bytes_per_s": moved / seconds, "reported_at": now}
        if insert_new(connection, measurements, key | {"reports": 1, "bytes": moved, "seconds": seconds} | fresh):
            continue
        known = update(measurements).where(c.topology == topology, c.src == src, c.dst == dst)
        sums = {"reports": c.reports + 1, "bytes": c.bytes + moved, "seconds": c.seconds + seconds}
        connection.execute(known.values(**sums, **fresh))


def of(connection: Connection, topology: str) -> list[Measured]:
    """All edges of a topology."""
    c = measurements.c
    query = select(*(c[name] for name in Measured.__slots__)).where(c.topology == topology).order_by(c.src, c.dst)
    return [Measured(**row._mapping) for row in connection.execute(query)]
