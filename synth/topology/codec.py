"""The topology document, ``synth-topology/1``: reading and writing."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from synth import documents
from synth.documents import Fields, Json
from synth.topology.model import (
    MAX_DEVICES,
    MAX_LINKS,
    Confidence,
    Device,
    DeviceKind,
    Finding,
    Link,
    LinkClass,
    Severity,
    Topology,
)

FORMAT = "synth-topology/1"

E = TypeVar("E", bound=StrEnum)


def to_document(topology: Topology) -> dict[str, Json]:
    """The topology as plain JSON values."""
    return {
        "format": FORMAT,
        "name": topology.name,
        "devices": [
            _present(id=d.id, kind=d.kind.value, node=d.node, numa=d.numa, pci=d.pci, uuid=d.uuid, model=d.model)
            for d in topology.devices
        ],
        "links": [
            {"class": link.link_class.value}
            | _present(
                src=link.src,
                dst=link.dst,
                bytes_per_s=link.bytes_per_s,
                latency_ns=link.latency_ns,
                source=link.source,
                confidence=None if link.confidence is None else link.confidence.value,
            )
            for link in topology.links
        ],
        "findings": [
            {"code": f.code, "severity": f.severity.value, "subject": f.subject, "message": f.message}
            for f in topology.findings
        ],
    }


def _present(**values: Json) -> dict[str, Json]:
    return {key: value for key, value in values.items() if value is not None}


def from_document(document: Json, *, subject: str = "topology") -> Topology:
    """Read a topology document.

    Raises:
        DocumentError: it breaks the format; the message holds the pointer.
        LimitError: it is larger than what is accepted.
        TopologyError: it contradicts itself.
    """
    fields = Fields(document, f"{subject}#")
    fields.format(FORMAT)
    name = fields.text("name")
    devices = tuple(
        _device(Fields(item, f"{subject}#/devices/{position}"))
        for position, item in enumerate(fields.items("devices", most=MAX_DEVICES))
    )
    links = tuple(
        _link(Fields(item, f"{subject}#/links/{position}"))
        for position, item in enumerate(fields.items("links", most=MAX_LINKS))
    )
    findings = tuple(
        _finding(Fields(item, f"{subject}#/findings/{position}"))
        for position, item in enumerate(fields.items("findings") if "findings" in fields.value else [])
    )
    return Topology(name=name, devices=devices, links=links, findings=findings)


def _device(fields: Fields) -> Device:
    return Device(
        id=fields.text("id"),
        kind=_member(fields, "kind", DeviceKind),
        node=fields.optional_text("node"),
        numa=fields.optional_integer("numa"),
        pci=fields.optional_text("pci"),
        uuid=fields.optional_text("uuid"),
        model=fields.optional_text("model"),
    )


def _link(fields: Fields) -> Link:
    return Link(
        src=fields.text("src"),
        dst=fields.text("dst"),
        link_class=_member(fields, "class", LinkClass),
        bytes_per_s=fields.number("bytes_per_s", positive=True),
        latency_ns=fields.number("latency_ns"),
        source=fields.optional_text("source"),
        confidence=_member(fields, "confidence", Confidence) if fields.value.get("confidence") is not None else None,
    )


def _finding(fields: Fields) -> Finding:
    return Finding(
        code=fields.text("code"),
        severity=_member(fields, "severity", Severity),
        subject=fields.text("subject"),
        message=fields.text("message"),
    )


def _member(fields: Fields, key: str, kind: type[E]) -> E:
    given = fields.text(key)
    try:
        return kind(given)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise fields.error(key, f"is {documents.shorten(given)}; must be one of {names}") from None


def dumps(topology: Topology) -> str:
    """The topology as canonical JSON text."""
    return documents.canonical(to_document(topology))


def load(path: str | Path) -> Topology:
    """Read a topology file; errors as :func:`from_document` and :func:`synth.documents.read`."""
    return from_document(documents.read(path), subject=str(path))


def save(topology: Topology, path: str | Path) -> None:
    """Write a topology file, whole or not at all."""
    documents.write(path, dumps(topology) + "\n")
