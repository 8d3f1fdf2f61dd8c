"""A topology with links dead or slower, as it is after a failure; each change leaves a finding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from synth.documents import shorten
from synth.errors import InputError, TopologyError
from synth.topology.model import Finding, Link, Severity, Topology


def degrade(topology: Topology, factors: Mapping[tuple[str, str], float]) -> Topology:
    """Scale links by a factor from 0 (dead: the link goes away) to 1; both directions of each pair.

    Args:
        topology: what to change.
        factors: for each pair of device ids, in either order, the factor.

    Raises:
        TopologyError: no link joins a pair.
        InputError: a factor is not from 0 to 1.
    """
    changed: dict[Link, Link | None] = {}
    findings: list[Finding] = []
    for (a, b), factor in factors.items():
        if not (math.isfinite(factor) and 0 <= factor <= 1):
            raise InputError(f"link {a}:{b}: factor is {factor}; must be from 0 (dead) to 1", subject=f"{a}:{b}")
        for end in (a, b):
            topology.device(end)
        hit = [link for link in topology.links if {link.src, link.dst} == {a, b}]
        if not hit:
            raise TopologyError(f"link {a}:{b}: topology {topology.name} has no such link", subject=f"{a}:{b}")
        for link in hit:
            changed[link] = replace(link, bytes_per_s=_scaled(link.bytes_per_s, factor)) if factor > 0 else None
        findings.append(_finding(a, b, factor))
    kept = [changed.get(link, link) for link in topology.links]
    return replace(
        topology,
        name=f"{topology.name}-degraded",
        links=tuple(link for link in kept if link is not None),
        findings=(*topology.findings, *findings),
    )


def _scaled(rate: float, factor: float) -> float:
    scaled = rate * factor
    return round(scaled) if scaled > 1e3 else scaled


def _finding(a: str, b: str, factor: float) -> Finding:
    if factor == 0:
        return Finding(
            code="link-down",
            severity=Severity.ERROR,
            subject=f"{a}:{b}",
            message=f"the link between {a} and {b} is dead",
        )
    return Finding(
        code="link-degraded",
        severity=Severity.WARNING,
        subject=f"{a}:{b}",
        message=f"the link between {a} and {b} runs at {factor:g} of its rate",
    )


def parse_factor(text: str) -> tuple[tuple[str, str], float]:
    """Read ``A:B=0.5``; ``A:B`` alone means dead.

    Raises:
        InputError: it is not that.
    """
    pair, _, factor = text.partition("=")
    a, _, b = pair.partition(":")
    try:
        value = float(factor) if factor else 0.0
    except ValueError:
        value = math.nan
    if not a or not b or math.isnan(value):
        raise InputError(
            f"--link: {shorten(text)} is no link; write A:B=FACTOR, such as n0/gpu0:n0/gpu4=0.5", subject=text
        )
    return (a, b), value
