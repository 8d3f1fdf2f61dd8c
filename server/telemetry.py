"""Finding the edges that fall behind: measured against edges with an equal route, not against the data sheet.

Flows share links, so what one edge reaches says little by itself; but edges whose routes have the same slowest link,
in a collective that treats them alike, reach about the same. One that stays far below the others has a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from synth.documents import Json
from synth.topology import Severity, Topology
from synth.topology.paths import routes_from
from synth.units import format_rate

BEHIND = 0.5
"""An edge below this part of the others' median is a finding."""
FEWEST = 4
"""Edges with an equal route that make a comparison."""


def compare(machine: Topology, edges: Sequence[Json]) -> Json:
    """Give each edge its route's rate and the others' median, and name those that fall behind.

    Args:
        machine: where they were measured.
        edges: {src, dst, bytes, seconds, ..} each.

    Returns:
        {edges: the same with bytes_per_s, route_bytes_per_s and peers_bytes_per_s; findings}.
    """
    rates = _route_rates(machine, edges)
    rows = [
        dict(edge, bytes_per_s=edge["bytes"] / edge["seconds"], route_bytes_per_s=rates.get((edge["src"], edge["dst"])))
        for edge in edges
    ]
    alike: dict[float, list[float]] = {}
    for row in rows:
        if row["route_bytes_per_s"] is not None:
            alike.setdefault(row["route_bytes_per_s"], []).append(row["bytes_per_s"])
    findings = []
    for row in rows:
        peers = alike.get(row["route_bytes_per_s"], [])
        row["peers_bytes_per_s"] = median(peers) if len(peers) >= FEWEST else None
        if row["peers_bytes_per_s"] is not None and row["bytes_per_s"] < BEHIND * row["peers_bytes_per_s"]:
            findings.append(_finding(row))
    return {"edges": rows, "findings": findings}


def _route_rates(machine: Topology, edges: Sequence[Json]) -> dict[tuple[str, str], float]:
    """Rate of the slowest link of each edge's route."""
    targets: dict[str, list[str]] = {}
    for edge in edges:
        targets.setdefault(edge["src"], []).append(edge["dst"])
    rates = {}
    for src, ends in targets.items():
        for dst, path in zip(ends, routes_from(machine, src, ends), strict=True):
            if path is not None:
                rates[src, dst] = min(machine.links[position].bytes_per_s for position in path)
    return rates


def _finding(row: Json) -> Json:
    return {
        "code": "edge-behind",
        "severity": Severity.WARNING.value,
        "subject": f"{row['src']}:{row['dst']}",
        "message": f"{row['src']} -> {row['dst']} reaches {format_rate(row['bytes_per_s'])}, edges with an equal route "
        f"{format_rate(row['peers_bytes_per_s'])}; check the links of its route",
    }
