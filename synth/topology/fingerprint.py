"""The fingerprint: one digest for all machines of the same shape, whatever they and their devices are called.

Devices are put in a canonical order by colour refinement (Weisfeiler-Leman on the links' class, rate and latency and
on who shares a node); devices that refinement cannot tell apart follow the natural order of their ids. So names of
nodes and the order of the document never matter, and equal fingerprints always mean isomorphic machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from synth import documents
from synth.topology.model import Topology, natural_key


def fingerprint(topology: Topology) -> str:
    """SHA-256 over devices and links in canonical order, without names, sources and findings."""
    order = canonical_order(topology)
    place = {device: position for position, device in enumerate(order)}
    nodes: dict[str, int] = {}
    devices = []
    for position in order:
        device = topology.devices[position]
        node = -1 if device.node is None else nodes.setdefault(device.node, len(nodes))
        devices.append([device.kind.value, node])
    links = sorted(
        [
            place[topology.index[link.src]],
            place[topology.index[link.dst]],
            link.link_class.value,
            link.bytes_per_s,
            link.latency_ns,
        ]
        for link in topology.links
    )
    return documents.digest({"devices": devices, "links": links})


def canonical_order(topology: Topology) -> list[int]:
    """Positions of the devices in canonical order: by colour, then by the natural order of node and id."""
    colours = refine(topology, [device.kind.value for device in topology.devices])
    return sorted(
        range(len(topology.devices)),
        key=lambda p: (colours[p], natural_key(topology.devices[p].node or ""), natural_key(topology.devices[p].id)),
    )


def refine(topology: Topology, colours: Sequence[str]) -> list[str]:
    """Stable colouring of the devices that refines the given one; colours are hex digests, equal across machines.

    Source: Weisfeiler and Leman, 1968 (the one-dimensional case).
    """
    current = [_hash(colour) for colour in colours]
    edges = [
        (
            topology.index[link.src],
            topology.index[link.dst],
            _hash(f"{link.link_class.value}|{_number(link.bytes_per_s)}|{_number(link.latency_ns)}"),
        )
        for link in topology.links
    ]
    members: dict[str, list[int]] = {}
    for position, device in enumerate(topology.devices):
        if device.node is not None:
            members.setdefault(device.node, []).append(position)
    classes = len(set(current))
    while True:
        seen: list[list[str]] = [[] for _ in current]
        for src, dst, label in edges:
            seen[src].append(f">{label}{current[dst]}")
            seen[dst].append(f"<{label}{current[src]}")
        for inside in members.values():
            together = _hash("".join(sorted(current[p] for p in inside)))
            for position in inside:
                seen[position].append(together)
        current = [_hash(own + "".join(sorted(around))) for own, around in zip(current, seen, strict=True)]
        if (now := len(set(current))) == classes:
            return current
        classes = now


def _number(value: float) -> str:
    return documents.canonical(value)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
