"""Packing documents for the database: gzipped once, then served as ready bytes."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def pack(text: str) -> bytes:
    """Gzip a document; the same text gives the same bytes."""
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def unpack(data: bytes) -> str:
    """The document's text again."""
    return gzip.decompress(data).decode()


def insert_new(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same key is there already.

    Returns:
        whether it was inserted.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return connection.execute(insert(table).values(**values).on_conflict_do_nothing()).rowcount == 1
