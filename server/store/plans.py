"""Plans and their slices, immutable, and which plan answers which request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select

from server.store.documents import insert_new, pack
from server.store.tables import plans, resolutions, slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Which plan answers a request, and how good it is.

    Attributes:
        key: digest of the request.
        shape: digest of the request with devices replaced by their canonical places.
        subject: digest of the request without its size and options.
        bytes: the size the plan was made for.
        min_bytes: smallest size it answers.
        max_bytes: largest size it answers.
        plan: its digest.
        bound_seconds: proven lower bound at ``bytes``.
        predicted_seconds: of the plan at ``bytes``.
        gap: predicted / bound - 1.
        created_at: seconds since 1970.
    """

    key: str
    shape: str
    subject: str
    bytes: int
    min_bytes: int
    max_bytes: int
    plan: str
    bound_seconds: float | None
    predicted_seconds: float | None
    gap: float | None
    created_at: float


def add(
    connection: Connection, *, digest: str, topology: str, collective: str, ranks: int, text: str, now: float
) -> bool:
    """Remember a verified plan; returns whether it is new."""
    values = {"digest": digest, "topology": topology, "collective": collective, "ranks": ranks}
    return insert_new(connection, plans, values | {"document": pack(text), "created_at": now})


def get(connection: Connection, digest: str) -> bytes | None:
    """The plan's document, gzipped, or None."""
    return connection.execute(select(plans.c.document).where(plans.c.digest == digest)).scalar_one_or_none()


def topology_of(connection: Connection, digest: str) -> str | None:
    """Digest of the topology document a plan was made and verified for."""
    return connection.execute(select(plans.c.topology).where(plans.c.digest == digest)).scalar_one_or_none()


def ranks_of(connection: Connection, digest: str) -> int | None:
    """How many ranks a plan has, or None where there is no such plan."""
    return connection.execute(select(plans.c.ranks).where(plans.c.digest == digest)).scalar_one_or_none()


def every(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """The newest plans with their best resolution."""
    query = (
        select(
            plans.c.digest,
            plans.c.topology,
            plans.c.collective,
            plans.c.ranks,
            plans.c.created_at,
            func.max(resolutions.c.bytes).label("bytes"),
            func.min(resolutions.c.predicted_seconds).label("predicted_seconds"),
            func.min(resolutions.c.bound_seconds).label("bound_seconds"),
            func.min(resolutions.c.gap).label("gap"),
        )
        .join(resolutions, resolutions.c.plan == plans.c.digest, isouter=True)
        .group_by(plans.c.digest, plans.c.topology, plans.c.collective, plans.c.ranks, plans.c.created_at)
        .order_by(plans.c.created_at.desc(), plans.c.digest)
        .limit(limit)
    )
    return [dict(row._mapping) for row in connection.execute(query)]


def add_slices(connection: Connection, plan: str, texts: Sequence[tuple[str, str]], *, first: int) -> None:
    """Remember slices of a plan, (digest, text) of each rank from ``first`` on."""
    for rank, (digest, text) in enumerate(texts, start=first):
        insert_new(connection, slices, {"plan": plan, "rank": rank, "digest": digest, "document": pack(text)})


def get_slice(connection: Connection, plan: str, rank: int) -> tuple[str, bytes] | None:
    """(digest, gzipped document) of one rank's slice, or None where it was not made yet."""
    query = select(slices.c.digest, slices.c.document).where(slices.c.plan == plan, slices.c.rank == rank)
    row = connection.execute(query).one_or_none()
    return None if row is None else (row.digest, row.document)


def add_resolution(connection: Connection, resolution: Resolution) -> bool:
    """Remember which plan answers a request; the first answer stays."""
    values = {name: getattr(resolution, name) for name in Resolution.__slots__}
    return insert_new(connection, resolutions, values)


def resolution(connection: Connection, key: str) -> Resolution | None:
    """The answer to exactly this request."""
    row = connection.execute(select(resolutions).where(resolutions.c.key == key)).one_or_none()
    return None if row is None else Resolution(**row._mapping)


def of_shape(connection: Connection, shape: str) -> Resolution | None:
    """An answer to this request for an equal machine, possibly of other names."""
    query = select(resolutions).where(resolutions.c.shape == shape).order_by(resolutions.c.created_at).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else Resolution(**row._mapping)


def nearest(connection: Connection, subject: str, size: int) -> tuple[Resolution, bool] | None:
    """The best plan for a size, and whether it was chosen for a range that holds this size.

    Ranges that hold the size come first, then the closest range, then the smallest gap, then the newest.
    """
    c = resolutions.c
    distance = case((c.min_bytes > size, c.min_bytes - size), (c.max_bytes < size, size - c.max_bytes), else_=0)
    gap = func.coalesce(c.gap, 1e9)
    query = select(resolutions).where(c.subject == subject).order_by(distance, gap, c.created_at.desc(), c.key).limit(1)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    found = Resolution(**row._mapping)
    return found, found.min_bytes <= size <= found.max_bytes


def count(connection: Connection) -> int:
    """How many plans there are."""
    return connection.execute(select(func.count()).select_from(plans)).scalar_one()
