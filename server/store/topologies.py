"""Topology documents: immutable, known by their digest and, all equal machines together, by their fingerprint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from server.store.documents import insert_new, pack, unpack
from server.store.tables import topologies


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One topology document.

    Attributes:
        digest: of the document.
        fingerprint: of the machine's shape.
        name: as the document says.
        devices: how many.
        gpus: how many of them are GPUs.
        links: how many.
        places: [(GPU id, its place in canonical order)] in the document's order.
        text: the document.
        created_at: seconds since 1970.
    """

    digest: str
    fingerprint: str
    name: str
    devices: int
    gpus: int
    links: int
    places: tuple[tuple[str, int], ...]
    text: str
    created_at: float

    @property
    def ranks(self) -> tuple[str, ...]:
        """Ids of the GPUs, in the document's order."""
        return tuple(id for id, _ in self.places)


def add(connection: Connection, stored: Stored) -> bool:
    """Remember a topology.

    Returns:
        whether this document is new.
    """
    return insert_new(
        connection,
        topologies,
        {
            "digest": stored.digest,
            "fingerprint": stored.fingerprint,
            "name": stored.name,
            "devices": stored.devices,
            "gpus": stored.gpus,
            "links": stored.links,
            "places": pack(json.dumps(stored.places)),
            "document": pack(stored.text),
            "created_at": stored.created_at,
        },
    )


def find(connection: Connection, name: str) -> Stored | None:
    """The document of this digest, or the oldest of this fingerprint."""
    query = (
        select(topologies)
        .where(or_(topologies.c.digest == name, topologies.c.fingerprint == name))
        .order_by((topologies.c.digest != name), topologies.c.created_at, topologies.c.digest)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _stored(row)


def same_gpus(connection: Connection, stored: Stored, *, limit: int = 16) -> list[str]:
    """Digests of the newest other documents with the same GPU ids: most likely the machine before links changed."""
    c = topologies.c
    query = (
        select(c.digest, c.places)
        .where(c.gpus == stored.gpus, c.digest != stored.digest)
        .order_by(c.created_at.desc(), c.digest)
        .limit(limit)
    )
    ids = set(stored.ranks)
    return [row.digest for row in connection.execute(query) if {id for id, _ in json.loads(unpack(row.places))} == ids]


def every(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """The newest, without their documents."""
    c = topologies.c
    query = select(c.digest, c.fingerprint, c.name, c.gpus, c.links, c.created_at)
    rows = connection.execute(query.order_by(c.created_at.desc(), c.digest).limit(limit))
    return [dict(row._mapping) for row in rows]


def _stored(row: Row[tuple[object, ...]]) -> Stored:
    values = dict(row._mapping)
    places = tuple((id, place) for id, place in json.loads(unpack(values.pop("places"))))
    return Stored(text=unpack(values.pop("document")), places=places, **values)
