"""Topologies: model, document, fingerprint, routes, merging, degrading and the catalog of reference machines."""

from synth.topology.codec import dumps, from_document, load, save, to_document
from synth.topology.model import (
    Confidence,
    Device,
    DeviceKind,
    Finding,
    Link,
    LinkClass,
    Severity,
    Topology,
)
from synth.topology.routes import Routes

__all__ = [
    "Confidence",
    "Device",
    "DeviceKind",
    "Finding",
    "Link",
    "LinkClass",
    "Routes",
    "Severity",
    "Topology",
    "dumps",
    "from_document",
    "load",
    "save",
    "to_document",
]
