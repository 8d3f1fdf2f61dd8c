"""Checking topologies, merging reports, holding measurements against routes."""

from __future__ import annotations

from server import telemetry
from server.tasks.reading import Report, read_text
from synth import documents, topology
from synth.documents import Json
from synth.topology import Topology
from synth.topology.fingerprint import canonical_order
from synth.topology.merge import merge


def read_topology(task: Json, _report: Report) -> Json:
    """Check a topology: {document} -> {text, digest, fingerprint, name, devices, links, places, nodes, findings}."""
    return describe(topology.from_document(task["document"], subject=task.get("subject", "body")))


def describe(machine: Topology) -> dict[str, Json]:
    """What the server keeps about a topology."""
    text = topology.dumps(machine)
    place = {machine.devices[position].id: number for number, position in enumerate(canonical_order(machine))}
    return {
        "text": text,
        "digest": documents.digest_text(text),
        "fingerprint": machine.fingerprint,
        "name": machine.name,
        "devices": len(machine.devices),
        "links": len(machine.links),
        "places": [[id, place[id]] for id in machine.gpus],
        "nodes": list(machine.nodes),
        "findings": len(machine.findings),
    }


def freeze(task: Json, _report: Report) -> Json:
    """Merge node reports: {name, reports: [text]} -> as :func:`read_topology`."""
    parts = [read_text(text) for text in task["reports"]]
    return describe(merge(parts, name=task["name"]))


def compare(task: Json, _report: Report) -> Json:
    """Hold measured edges against their routes: {topology (text), edges} -> {edges, findings}."""
    return telemetry.compare(read_text(task["topology"]), task["edges"])
