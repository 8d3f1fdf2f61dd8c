"""Drawing a topology as text: the machine as a tree, GPUs against GPUs as a matrix, what was noticed."""

from __future__ import annotations

from collections import Counter

from synth.topology.model import Device, DeviceKind, Link, LinkClass, Topology, natural_key
from synth.topology.paths import routes_from
from synth.units import format_rate

MATRIX_GPUS = 16
"""Machines with more GPUs than this are drawn without the matrix, which no terminal could show."""

TREE_DEVICES = 400
"""Topologies with more devices than this are summarised per node."""


def render(topology: Topology) -> str:
    """The whole picture: counts, one tree per node, the matrix of routes between GPUs, findings."""
    parts = [_title(topology)]
    if len(topology.devices) <= TREE_DEVICES:
        parts += [tree(topology, node) for node in topology.nodes]
        parts.append(_between(topology))
    if 1 < len(topology.gpus) <= MATRIX_GPUS:
        parts.append(matrix(topology))
    parts.append(findings(topology))
    return "\n\n".join(part for part in parts if part)


def _title(topology: Topology) -> str:
    counts = Counter(device.kind.value for device in topology.devices)
    plural = {"switch": "switches"}
    shown = ", ".join(
        f"{count} {kind if count == 1 else plural.get(kind, f'{kind}s')}" for kind, count in counts.items()
    )
    return f"{topology.name}: {shown}, {len(topology.links)} links; fingerprint {topology.fingerprint[:12]}"


def tree(topology: Topology, node: str) -> str:
    """One machine from its sockets down to GPUs and NICs, each with its way up; then its NVLinks.

    Args:
        topology: that holds the node.
        node: name of the machine.
    """
    inside = {device.id: device for device in topology.devices if device.node == node}
    up: dict[str, Link] = {}
    for link in topology.links:
        if link.link_class is LinkClass.PCIE and link.src in inside and link.dst in inside and _rises(link, inside):
            up.setdefault(link.src, link)
    lines = [node]
    roots = [id for id in inside if id not in up and (inside[id].kind is DeviceKind.HOST or _below(id, up))]
    for root in roots:
        lines += _branch(root, inside, up, "  ")
    loose = [id for id in inside if id not in up and id not in roots and inside[id].kind is not DeviceKind.SWITCH]
    lines += [f"  {_label(inside[id])}" for id in loose]
    lines += _nvlinks(topology, node)
    return "\n".join(lines)


_HEIGHT = {DeviceKind.GPU: 0, DeviceKind.NIC: 0, DeviceKind.SWITCH: 1, DeviceKind.HOST: 2}


def _rises(link: Link, inside: dict[str, Device]) -> bool:
    """Whether a link leads towards the host; between two switches the one with the larger number hangs below."""
    low, high = _HEIGHT[inside[link.src].kind], _HEIGHT[inside[link.dst].kind]
    return low < high or (low == high == 1 and natural_key(link.src) > natural_key(link.dst))


def _below(id: str, up: dict[str, Link]) -> list[str]:
    return [src for src, link in up.items() if link.dst == id]


def _branch(id: str, inside: dict[str, Device], up: dict[str, Link], indent: str) -> list[str]:
    rate = f"  {format_rate(up[id].bytes_per_s)}" if id in up else ""
    lines = [f"{indent}{_label(inside[id])}{rate}"]
    for child in _below(id, up):
        lines += _branch(child, inside, up, indent + "  ")
    return lines


def _label(device: Device) -> str:
    extras = [text for text in (device.model, device.pci) if text]
    if device.numa is not None and device.kind is DeviceKind.HOST:
        extras.append(f"NUMA {device.numa}")
    name = device.id.rpartition("/")[2]
    return f"{name} ({', '.join(extras)})" if extras else name


def _nvlinks(topology: Topology, node: str) -> list[str]:
    """One line for each bundle rate: which pairs, or which GPUs into which switch."""
    rows: dict[tuple[str, float, str], list[str]] = {}
    for link in topology.links:
        src, dst = topology.device(link.src), topology.device(link.dst)
        if link.link_class not in (LinkClass.NVLINK, LinkClass.C2C) or node not in (src.node, dst.node):
            continue
        short, far = src.id.rpartition("/")[2], dst.id.rpartition("/")[2]
        if dst.kind is not DeviceKind.GPU:
            rows.setdefault((link.link_class.value, link.bytes_per_s, far), []).append(short)
        elif src.kind is DeviceKind.GPU and natural_key(short) < natural_key(far):
            rows.setdefault((link.link_class.value, link.bytes_per_s, ""), []).append(
                f"{short.removeprefix('gpu')}-{far.removeprefix('gpu')}"
            )
    return [
        f"  {kind} {format_rate(rate)} each way{f' to {far}' if far else ''}: {' '.join(names)}"
        for (kind, rate, far), names in sorted(rows.items(), key=lambda row: (row[0][0], -row[0][1], row[0][2]))
    ]


def _between(topology: Topology) -> str:
    """Links that leave nodes or join fabric switches."""
    rows: Counter[tuple[str, float]] = Counter()
    for link in topology.links:
        if topology.device(link.src).node != topology.device(link.dst).node:
            rows[link.link_class.value, link.bytes_per_s] += 1
    if not rows:
        return ""
    lines = [f"  {count} {kind} links of {format_rate(rate)}" for (kind, rate), count in sorted(rows.items())]
    return "\n".join(["between nodes", *lines])


def matrix(topology: Topology) -> str:
    """GPUs against GPUs: class and narrowest rate, in GB/s, of the route a direct send takes; ``.`` where none is."""
    ids = topology.gpus
    names = [id.rpartition("/")[2] if len(topology.nodes) < 2 else id for id in ids]
    cells = []
    for row, source in enumerate(ids):
        routes = routes_from(topology, source, ids)
        cells.append(["X" if row == column else _cell(topology, route) for column, route in enumerate(routes)])
    width = max(len(text) for text in (*names, *(cell for row in cells for cell in row))) + 2
    lines = [
        "route between GPUs (class and GB/s of its narrowest link)",
        " " * width + "".join(n.ljust(width) for n in names),
    ]
    lines += [
        name.ljust(width) + "".join(cell.ljust(width) for cell in row) for name, row in zip(names, cells, strict=True)
    ]
    return "\n".join(line.rstrip() for line in lines)


_SLOWEST_LAST = (LinkClass.C2C, LinkClass.NVLINK, LinkClass.PCIE, LinkClass.SMP, LinkClass.NETWORK)
_SHORT = {
    LinkClass.C2C: "C2C", LinkClass.NVLINK: "NV", LinkClass.PCIE: "PCI", LinkClass.SMP: "SMP", LinkClass.NETWORK: "NET",
}  # fmt: skip


def _cell(topology: Topology, route: tuple[int, ...] | None) -> str:
    if route is None:
        return "."
    links = [topology.links[position] for position in route]
    kind = max((link.link_class for link in links), key=_SLOWEST_LAST.index)
    return f"{_SHORT[kind]} {min(link.bytes_per_s for link in links) / 1e9:.3g}"


def findings(topology: Topology) -> str:
    """What was noticed, gravest first."""
    order = {"error": 0, "warning": 1, "info": 2}
    rows = sorted(topology.findings, key=lambda finding: order[finding.severity.value])
    return "\n".join(f"{f.severity.value}: {f.code} [{f.subject}] {f.message}" for f in rows)
