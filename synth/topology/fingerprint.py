"""The fingerprint: one digest for all machines of the same shape, whatever they and their devices are called.

Devices are put in a canonical order in two steps. Colour refinement over the whole topology (Weisfeiler-Leman, on the
links' class, rate and latency and on who shares a node) tells apart what differs. Then devices that still look alike
are told apart by individualising one after another and refining again, over the whole of a small machine, node by
node in a large one; among those whose refinement looks the same, the natural order of ids decides. Equal fingerprints
always mean isomorphic machines; isomorphic machines have equal fingerprints but for contrived graphs and for large
clusters whose cables follow each node's own numbering.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from synth import documents
from synth.topology.model import Topology, natural_key

_WHOLE = 64
"""Machines of at most so many devices are searched as a whole."""
_SEARCHED = 128
"""Nodes with more devices are ordered by colour and id alone."""

_Edge = tuple[int, int, str]


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
    """Positions of the devices in canonical order: node after node, devices without a node last."""
    colours = refine(topology, [device.kind.value for device in topology.devices])
    if len(topology.devices) <= _WHOLE:
        return _order_whole(topology, colours)
    groups: dict[str | None, list[int]] = {}
    for position, device in enumerate(topology.devices):
        groups.setdefault(device.node, []).append(position)
    group_of = {position: node for node, members in groups.items() for position in members}
    inner: dict[str | None, list[tuple[int, int, str]]] = {}
    for link, label in zip(topology.links, _labels(topology), strict=True):
        src, dst = topology.index[link.src], topology.index[link.dst]
        if group_of[src] == group_of[dst]:
            inner.setdefault(group_of[src], []).append((src, dst, label))
    known: dict[object, list[int]] = {}
    ordered = []
    for node, members in groups.items():
        members.sort(key=lambda p: natural_key(topology.devices[p].id))
        place = {position: number for number, position in enumerate(members)}
        edges = sorted((place[a], place[b], label) for a, b, label in inner.get(node, []))
        start = tuple(colours[position] for position in members)
        problem = (start, tuple(edges))
        if problem not in known:
            known[problem] = _order_alike(start, edges)
        sequence = [members[number] for number in known[problem]]
        key = (node is None, [colours[position] for position in sequence], natural_key(node or ""))
        ordered.append((key, sequence))
    ordered.sort()
    return [position for _, sequence in ordered for position in sequence]


def _order_whole(topology: Topology, colours: Sequence[str]) -> list[int]:
    """Order a small machine's devices; who shares a node is kept by one more vertex per node."""
    natural = sorted(range(len(colours)), key=lambda p: natural_key(topology.devices[p].id))
    place = {position: number for number, position in enumerate(natural)}
    hub = {node: len(natural) + number for number, node in enumerate(sorted(topology.nodes, key=natural_key))}
    edges = [
        (place[topology.index[link.src]], place[topology.index[link.dst]], label)
        for link, label in zip(topology.links, _labels(topology), strict=True)
    ]
    edges += [(place[p], hub[d.node], "node") for p, d in enumerate(topology.devices) if d.node is not None]
    start = [colours[position] for position in natural] + ["node"] * len(hub)
    return [natural[number] for number in _order_alike(start, edges) if number < len(natural)]


def _order_alike(start: Sequence[str], edges: Sequence[_Edge]) -> list[int]:
    """Order one node's devices, given in natural order, so that relabelling them gives the same machine."""
    ranks = {colour: number for number, colour in enumerate(sorted(set(start)))}
    colours = [ranks[colour] for colour in start]
    if len(start) <= _SEARCHED:
        colours = _stable(colours, edges)
        while (cell := _first_cell(colours)) is not None:
            tried = [_stable(_individualised(colours, device), edges) for device in cell]
            colours = min(tried, key=lambda result: _shape(result, edges))
    return sorted(range(len(colours)), key=lambda device: (colours[device], device))


def _first_cell(colours: Sequence[int]) -> list[int] | None:
    """The devices of the lowest colour that several have."""
    cells: dict[int, list[int]] = {}
    for device, colour in enumerate(colours):
        cells.setdefault(colour, []).append(device)
    return next((cells[colour] for colour in sorted(cells) if len(cells[colour]) > 1), None)


def _individualised(colours: Sequence[int], device: int) -> list[int]:
    return [2 * colour - (number == device) for number, colour in enumerate(colours)]


def _stable(colours: Sequence[int], edges: Sequence[_Edge]) -> list[int]:
    """Refine small integer colours until they tell nothing more apart; the result depends on structure only."""
    current = list(colours)
    classes = 0
    while True:
        seen: list[list[tuple[int, str, int]]] = [[] for _ in current]
        for src, dst, label in edges:
            seen[src].append((0, label, current[dst]))
            seen[dst].append((1, label, current[src]))
        signs = [(own, tuple(sorted(around))) for own, around in zip(current, seen, strict=True)]
        ranks = {sign: number for number, sign in enumerate(sorted(set(signs)))}
        current = [ranks[sign] for sign in signs]
        if len(ranks) == classes:
            return current
        classes = len(ranks)


def _shape(colours: Sequence[int], edges: Sequence[_Edge]) -> tuple[list[int], list[_Edge]]:
    return sorted(colours), sorted((colours[src], colours[dst], label) for src, dst, label in edges)


def refine(topology: Topology, colours: Sequence[str]) -> list[str]:
    """Stable colouring of the devices that refines the given one; colours are hex digests, equal across machines.

    Source: Weisfeiler and Leman, 1968 (the one-dimensional case).
    """
    current = [_hash(colour) for colour in colours]
    edges = [
        (topology.index[link.src], topology.index[link.dst], label)
        for link, label in zip(topology.links, _labels(topology), strict=True)
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


def _labels(topology: Topology) -> list[str]:
    """What refinement sees of each link."""
    known: dict[tuple[object, ...], str] = {}
    labels = []
    for link in topology.links:
        facts = (link.link_class.value, link.bytes_per_s, link.latency_ns)
        if facts not in known:
            known[facts] = _hash(documents.canonical(list(facts)))
        labels.append(known[facts])
    return labels


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
