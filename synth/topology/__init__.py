"""Topologies: model, document, fingerprint, routes, merging, degrading and the catalog of reference machines."""

from synth.topology import catalog
from synth.topology.codec import dumps, from_document, load, save, to_document
from synth.topology.degrade import degrade
from synth.topology.merge import merge, rename_node
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
    "catalog",
    "degrade",
    "dumps",
    "from_document",
    "load",
    "merge",
    "rename_node",
    "save",
    "to_document",
]
