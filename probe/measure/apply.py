"""Putting measured rates into a topology, and saying what is far from its claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from probe.findings import finding
from probe.measure.run import Edge, Measurement
from synth.topology import Confidence, Finding, LinkClass, Routes, Topology
from synth.topology.model import abridge
from synth.units import format_rate

USUAL = {LinkClass.NVLINK: 0.8, LinkClass.C2C: 0.8, LinkClass.PCIE: 1.0, LinkClass.SMP: 1.0, LinkClass.NETWORK: 0.95}
"""What part of the rate in a topology healthy links of each class reach (NVLink's is nominal)."""

FAR = 0.6
"""Below this part of what is usual a link is degraded."""


def apply(topology: Topology, ranks: Sequence[str], measured: Measurement) -> Topology:
    """The topology with measured rates and latencies, and findings.

    A route's rate says something of its slowest link only; a link gets the best rate of the routes that it is the
    slowest link of. Latency, less what launching a group takes on every route alike, is spread over a route's links as
    it was claimed.
    """
    routes = Routes.among(topology, ranks)
    launch = launch_ns(routes, measured)
    rates: dict[int, list[float]] = {}
    latencies: dict[int, list[float]] = {}
    for edge in measured.edges:
        route = [int(p) for p in routes.route(edge.src, edge.dst)]
        slowest = min(topology.links[p].bytes_per_s for p in route)
        claimed = sum(topology.links[p].latency_ns for p in route)
        for position in route:
            link = topology.links[position]
            if link.bytes_per_s <= slowest * 1.001:
                rates.setdefault(position, []).append(edge.fit.bytes_per_s)
            part = link.latency_ns / claimed if claimed else 1.0 / len(route)
            latencies.setdefault(position, []).append(max(edge.fit.alpha_ns - launch, 0.0) * part)
    links = list(topology.links)
    for position in latencies:
        link = links[position]
        rate = max(rates[position]) if position in rates else link.bytes_per_s
        links[position] = replace(
            link,
            bytes_per_s=float(round(rate)),
            latency_ns=float(round(median(latencies[position]))),
            source=f"measured; {link.source or 'claimed'} {format_rate(link.bytes_per_s)}",
            confidence=Confidence.MEASURED if position in rates else link.confidence,
        )
    found = _slow(topology, routes, ranks, measured.edges) + _wrong(ranks, measured)
    if measured.skipped:
        pairs = [f"{ranks[a]}:{ranks[b]}" for a, b in measured.skipped]
        text = f"{len(pairs)} routes were not measured within the time limit: {abridge(pairs, 4)}"
        found.append(finding("measure-skipped", pairs[0], text))
    return replace(topology, links=tuple(links), findings=topology.findings + tuple(found))


def launch_ns(routes: Routes, measured: Measurement) -> float:
    """What a group costs on every route alike: the least by which a measured latency exceeds the claimed one."""
    over = [edge.fit.alpha_ns - float(routes.latency_ns[edge.src, edge.dst]) for edge in measured.edges]
    return max(0.0, min(over, default=0.0))


def _slow(topology: Topology, routes: Routes, ranks: Sequence[str], edges: Sequence[Edge]) -> list[Finding]:
    found = []
    for edge in edges:
        route = [topology.links[int(p)] for p in routes.route(edge.src, edge.dst)]
        slowest = min(route, key=lambda link: link.bytes_per_s)
        usual = slowest.bytes_per_s * USUAL[slowest.link_class]
        if edge.fit.bytes_per_s < FAR * usual:
            text = (
                f"{ranks[edge.src]} to {ranks[edge.dst]} measured {format_rate(edge.fit.bytes_per_s)} "
                f"(spread {format_rate(edge.fit.rate_spread)}); {format_rate(usual)} is usual for its "
                f"{slowest.link_class.value} link of {format_rate(slowest.bytes_per_s)}"
            )
            found.append(finding("link-below-claim", f"{ranks[edge.src]}:{ranks[edge.dst]}", text))
    return found


def _wrong(ranks: Sequence[str], measured: Measurement) -> list[Finding]:
    found = [
        finding(
            "data-corrupt",
            f"{ranks[edge.src]}:{ranks[edge.dst]}",
            f"{edge.wrong_bytes} bytes between {ranks[edge.src]} and {ranks[edge.dst]} arrived wrong",
        )
        for edge in measured.edges
        if edge.wrong_bytes
    ]
    if measured.together_wrong:
        text = f"{measured.together_wrong} bytes arrived wrong when all pairs exchanged at once"
        found.append(finding("data-corrupt", "all pairs", text))
    return found


def table(topology: Topology, ranks: Sequence[str], measured: Measurement) -> str:
    """What was measured beside what is claimed, one line per route."""
    routes = Routes.among(topology, ranks)
    lines = [f"{'route':<24} {'measured':>12} {'spread':>12} {'claimed':>12} {'alpha':>9} {'claimed':>9}"]
    for edge in measured.edges:
        route = [topology.links[int(p)] for p in routes.route(edge.src, edge.dst)]
        lines.append(
            f"{ranks[edge.src] + ' > ' + ranks[edge.dst]:<24} {format_rate(edge.fit.bytes_per_s):>12} "
            f"{format_rate(edge.fit.rate_spread):>12} {format_rate(min(k.bytes_per_s for k in route)):>12} "
            f"{edge.fit.alpha_ns / 1e3:>6.2f} us {sum(k.latency_ns for k in route) / 1e3:>6.2f} us"
        )
    launch = launch_ns(routes, measured)
    if launch >= 1:
        lines.append(f"launching a group takes {launch / 1e3:.1f} us of each alpha; plan with --launch-ns {launch:.0f}")
    if measured.together_seconds:
        rate = measured.together_bytes / measured.together_seconds
        lines.append(f"all direct routes at once: {format_rate(rate)} each, {measured.together_bytes} bytes")
    return "\n".join(lines)
