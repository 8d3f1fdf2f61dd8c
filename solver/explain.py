"""Why a plan takes as long as it does: the links that bind, what they cost, and what the next best strategy was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.portfolio import Solved
from synth.plan import Certificate
from synth.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Links of the same kind and weight in the bound.

    Attributes:
        links: positions in the topology document.
        title: such as ``network links of 50.00 GB/s, such as n0/nic0 -> fabric``.
        part: of the bound that their rate decides: making each of them 1 % faster lowers the bound by at most
            ``part`` percent.
    """

    links: tuple[int, ...]
    title: str
    part: float


def binding_links(certificate: Certificate, topology: Topology, *, least: float = 0.01) -> list[Binding]:
    """What the bound hangs on, the heaviest first; links that weigh the same are one entry.

    Args:
        certificate: of kind ``lengths``.
        topology: it was made for.
        least: entries of a smaller part are left out.
    """
    if certificate.lengths is None or not certificate.lengths.any():
        return []
    weight = certificate.lengths * topology.bytes_per_s
    weight = weight / weight.sum()
    groups: dict[tuple[str, float, float], list[int]] = {}
    for position in np.flatnonzero(weight > 1e-9).tolist():
        link = topology.links[position]
        key = (link.link_class.value, link.bytes_per_s, float(f"{weight[position]:.6g}"))
        groups.setdefault(key, []).append(position)
    found = []
    for (kind, rate, _), links in groups.items():
        part = float(weight[links].sum())
        if part >= least:
            first = topology.links[links[0]]
            count = f"{len(links)} {kind} links" if len(links) > 1 else f"the {kind} link"
            such = "such as " if len(links) > 1 else ""
            title = f"{count} of {rate / 1e9:.4g} GB/s, {such}{first.src} -> {first.dst}"
            found.append(Binding(links=tuple(links), title=title, part=part))
    return sorted(found, key=lambda entry: (-entry.part, entry.links))


def second_best(solved: Solved) -> tuple[str, float] | None:
    """(strategy, predicted seconds) of the best strategy but the chosen one."""
    others = {name: seconds for name, seconds in solved.candidates.items() if name != solved.strategy}
    return min(others.items(), key=lambda item: (item[1], item[0]), default=None)
