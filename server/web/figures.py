"""A topology as one SVG picture: a box per node, links coloured by class and as wide as their rate, findings marked.

Looks are in ``static/style.css``; the picture itself has classes only, so that a strict content policy holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from synth.topology import Device, DeviceKind, Topology
from synth.topology.model import natural_key
from synth.units import format_rate

MOST_LINKS = 3000
"""A larger topology is drawn without links."""

_BOX, _GAP, _TOP = 340, 24, 90
_RADIUS = {DeviceKind.GPU: 120, DeviceKind.NIC: 155, DeviceKind.SWITCH: 45, DeviceKind.HOST: 80}

Point = tuple[float, float]


def topology_svg(machine: Topology) -> str:
    """Draw a topology."""
    places, boxes, size = _layout(machine)
    found = {finding.subject for finding in machine.findings}
    title = f"{machine.name}: {len(machine.gpus)} GPUs on {len(machine.nodes)} nodes, {len(machine.links)} links"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" role="img" '
        f'class="topology" aria-labelledby="topology-title"><title id="topology-title">{escape(title)}</title>'
    ]
    for name, (x, y) in boxes.items():
        parts.append(f'<rect class="node" x="{x:.0f}" y="{y:.0f}" width="{_BOX}" height="{_BOX}" rx="8"/>')
        parts.append(f'<text class="node" x="{x + 10:.0f}" y="{y + 20:.0f}">{escape(name)}</text>')
    if len(machine.links) <= MOST_LINKS:
        parts += _lines(machine, places, found)
    for device in machine.devices:
        x, y = places[device.id]
        marked = " finding" if device.id in found else ""
        label = device.id.rpartition("/")[2]
        about = f"{device.id}, {device.kind}{f', {device.model}' if device.model else ''}"
        parts.append(
            f'<g class="device {device.kind}{marked}"><title>{escape(about)}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{11 if device.kind is DeviceKind.GPU else 8}"/>'
            f'<text x="{x:.1f}" y="{y + 22:.1f}">{escape(label)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"])


def _layout(machine: Topology) -> tuple[dict[str, Point], dict[str, Point], Point]:
    """Where each device and each node's box is, and the size of the whole."""
    free = [device for device in machine.devices if device.node is None]
    top = _TOP if free else _GAP
    columns = max(1, math.ceil(math.sqrt(len(machine.nodes))))
    boxes: dict[str, Point] = {}
    for number, name in enumerate(machine.nodes):
        row, column = divmod(number, columns)
        boxes[name] = (_GAP + column * (_BOX + _GAP), top + row * (_BOX + _GAP))
    rows = math.ceil(len(machine.nodes) / columns) if machine.nodes else 0
    width = _GAP + columns * (_BOX + _GAP)
    places: dict[str, Point] = {}
    for name, (x, y) in boxes.items():
        for kind in DeviceKind:
            mine = [d for d in machine.devices if d.node == name and d.kind is kind]
            places |= _circle(mine, (x + _BOX / 2, y + _BOX / 2 + 4), _RADIUS[kind])
    for number, device in enumerate(free):
        places[device.id] = (width * (number + 1) / (len(free) + 1), _TOP / 2 - 10)
    return places, boxes, (width, top + rows * (_BOX + _GAP))


def _circle(devices: Sequence[Device], centre: Point, radius: float) -> dict[str, Point]:
    ordered = sorted(devices, key=lambda device: natural_key(device.id))
    if len(ordered) == 1 and ordered[0].kind in (DeviceKind.SWITCH, DeviceKind.HOST):
        return {ordered[0].id: centre}
    turn = 2 * math.pi / max(len(ordered), 1)
    return {
        device.id: (
            centre[0] + radius * math.sin(turn * (number + 0.5)),
            centre[1] - radius * math.cos(turn * (number + 0.5)),
        )
        for number, device in enumerate(ordered)
    }


def _lines(machine: Topology, places: dict[str, Point], found: set[str]) -> list[str]:
    """One line for both directions of a pair of devices."""
    pairs: dict[tuple[str, str], list[int]] = {}
    for position, link in enumerate(machine.links):
        ends = (link.src, link.dst) if link.src < link.dst else (link.dst, link.src)
        pairs.setdefault(ends, []).append(position)
    fastest = max((link.bytes_per_s for link in machine.links), default=1.0)
    lines = []
    for (a, b), positions in pairs.items():
        links = [machine.links[position] for position in positions]
        rate = max(link.bytes_per_s for link in links)
        width = 1 + 5 * math.sqrt(rate / fastest)
        marked = " finding" if {f"{a}:{b}", f"{b}:{a}"} & found else ""
        about = "; ".join(f"{x.src} → {x.dst}: {x.link_class}, {format_rate(x.bytes_per_s)}" for x in links[:4])
        (x1, y1), (x2, y2) = places[a], places[b]
        lines.append(
            f'<line class="link {links[0].link_class}{marked}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" '
            f'y2="{y2:.1f}" stroke-width="{width:.1f}"><title>{escape(about)}</title></line>'
        )
    return lines
