"""What each node's probe last reported."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Row, func, select, update

from server.store.documents import insert_new, pack, unpack
from server.store.tables import nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One node's latest report.

    Attributes:
        name: of the node.
        digest: of the document.
        fingerprint: of the topology in it.
        text: the document.
        findings: how many it holds.
        reported_at: when it last came, seconds since 1970.
        changed_at: when its content last changed.
    """

    name: str
    digest: str
    fingerprint: str
    text: str
    findings: int
    reported_at: float
    changed_at: float


def put(connection: Connection, report: Report) -> bool:
    """Replace a node's report.

    Returns:
        whether its content differs from the one before.
    """
    values = {
        "digest": report.digest,
        "fingerprint": report.fingerprint,
        "document": pack(report.text),
        "findings": report.findings,
        "reported_at": report.reported_at,
        "changed_at": report.changed_at,
    }
    if insert_new(connection, nodes, {"name": report.name} | values):
        return True
    same = update(nodes).where(nodes.c.name == report.name, nodes.c.digest == report.digest)
    if connection.execute(same.values(reported_at=report.reported_at)).rowcount:
        return False
    connection.execute(update(nodes).where(nodes.c.name == report.name).values(**values))
    return True


def get(connection: Connection, name: str) -> Report | None:
    """One node's report, or None."""
    row = connection.execute(select(nodes).where(nodes.c.name == name)).one_or_none()
    return None if row is None else _report(row)


def every(connection: Connection) -> list[Report]:
    """All reports, by name."""
    return [_report(row) for row in connection.execute(select(nodes).order_by(nodes.c.name))]


def _report(row: Row[tuple[object, ...]]) -> Report:
    values = dict(row._mapping)
    return Report(text=unpack(values.pop("document")), **values)


def summary(connection: Connection) -> tuple[int, int, float | None]:
    """(how many nodes, findings of all, when the one silent longest reported)."""
    query = select(func.count(), func.coalesce(func.sum(nodes.c.findings), 0), func.min(nodes.c.reported_at))
    count, findings, earliest = connection.execute(query).one()
    return count, findings, earliest
