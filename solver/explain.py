"""Why a plan takes as long as it does: the links that bind, what faster ones would save, and the next best strategy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.backend import Cancel
from solver.portfolio import Solved
from solver.upgrades import Upgrade, upgrades
from synth.documents import Json
from synth.plan import Certificate
from synth.topology import Topology
from synth.units import format_seconds

NOTHING = 0.005
"""Changes that save less of the bound save nothing worth telling."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a solve ended where it did.

    Attributes:
        solved: what is explained.
        binding: links that the bandwidth bound hangs on, the heaviest first.
        upgrades: what faster links would save of the bound; empty where latency binds, which they do not change.
        second_best: (strategy, predicted seconds) of the best strategy but the chosen one.
    """

    solved: Solved
    binding: tuple[Binding, ...]
    upgrades: tuple[Upgrade, ...]
    second_best: tuple[str, float] | None

    def to_document(self) -> dict[str, Json]:
        """As answers show it."""
        solved, second = self.solved, self.second_best
        certificate = solved.bound.certificate
        return {
            "binding": solved.bound.binding,
            "bandwidth_bound_seconds": certificate.bound_ns * 1e-9,
            "latency_bound_seconds": (certificate.latency_bound_ns or 0.0) * 1e-9,
            "links": [{"title": item.title, "part": item.part, "links": list(item.links)} for item in self.binding],
            "upgrades": [
                {
                    "change": item.change,
                    "links": list(item.links),
                    "saves": item.saves,
                    "bound_seconds": item.bound_seconds,
                }
                for item in self.upgrades
            ],
            "second_best": None
            if second is None
            else {"strategy": second[0], "seconds": second[1], "slower": _slower(second[1], solved)},
        }

    def lines(self) -> list[str]:
        """For people."""
        solved = self.solved
        certificate = solved.bound.certificate
        latency = (certificate.latency_bound_ns or 0.0) * 1e-9
        lines = [
            f"bandwidth bound {format_seconds(certificate.bound_ns * 1e-9)}, latency bound {format_seconds(latency)}: "
            f"{solved.bound.binding} binds"
        ]
        if solved.bound.binding == "latency":
            lines.append("no faster link would help; fewer or shorter hops would")
        else:
            lines += [f"{item.part:.0%} of the bandwidth bound hangs on {item.title}" for item in self.binding[:6]]
            lines += [str(item) for item in self.upgrades if item.saves >= NOTHING]
            idle = [item.change for item in self.upgrades if item.saves < NOTHING]
            lines += [f"alone would save nothing: {'; '.join(idle)}"] if idle else []
        if self.second_best is None:
            lines.append(f"second best: none, only {solved.strategy} was tried or serves this")
        else:
            name, seconds = self.second_best
            lines.append(f"second best: {name}, {format_seconds(seconds)}, {_slower(seconds, solved):.1%} slower")
        return lines


def explain(
    solved: Solved,
    topology: Topology,
    *,
    ranks: tuple[str, ...] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
) -> Explanation:
    """Explain a solve.

    Args:
        solved: on this topology.
        topology: as it is.
        ranks: device id of each rank, helpers last; default: every GPU.
        time_limit: seconds for proving what faster links would save.
        seed: for the linear programs.
        cancel: asked now and then whether to stop with what is known.
    """
    bound = solved.bound
    changes = []
    if bound.binding == "bandwidth":
        changes = upgrades(
            topology,
            solved.demand,
            bound.certificate,
            bound.seconds,
            ranks=ranks,
            time_limit=time_limit,
            seed=seed,
            cancel=cancel,
        )
    return Explanation(
        solved=solved,
        binding=tuple(binding_links(bound.certificate, topology)),
        upgrades=tuple(changes),
        second_best=second_best(solved),
    )


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


def _slower(seconds: float, solved: Solved) -> float:
    return seconds / solved.predicted_seconds - 1 if solved.predicted_seconds > 0 else 0.0
