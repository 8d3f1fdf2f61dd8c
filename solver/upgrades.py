"""What a faster machine would save: the links that bind, grouped as somebody would buy them, at twice their rate.

Everything that touches a NIC belongs to it: a second NIC doubles the way to it and the way out. Other links go by the
node they are on and what they are made of. Each group is tried as a link or NIC of its own, as all of its node, and as
all of the machine; the bound is proven anew for each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from solver.backend import Cancel
from solver.bound import prove
from synth.collective import Demand
from synth.plan import Certificate
from synth.topology import Device, DeviceKind, Topology

LEAST = 0.02
"""Groups that the bound hangs on by less are not tried."""
PER_LEVEL = 2
"""Of single links or NICs, of nodes, and of whole machines so many are tried: those that the bound hangs on most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """One change of the machine.

    Attributes:
        change: such as ``a second NIC beside each of the 8 of n0``.
        links: positions in the topology document whose rate doubles.
        saves: part of the bound that is saved.
        bound_seconds: what is left of it.
    """

    change: str
    links: tuple[int, ...]
    saves: float
    bound_seconds: float

    def __str__(self) -> str:
        return f"{self.change} would save {100 * self.saves:.0f} %"


def upgrades(
    topology: Topology,
    demand: Demand,
    certificate: Certificate,
    bound_seconds: float,
    *,
    ranks: tuple[str, ...] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
) -> list[Upgrade]:
    """Changes worth considering, the best first.

    Args:
        topology: as it is.
        demand: what is asked of it.
        certificate: of kind ``lengths``; says which links bind.
        bound_seconds: of the machine as it is.
        ranks: device id of each rank, helpers last; default: every GPU.
        time_limit: seconds for all of them.
        seed: for the linear programs.
        cancel: asked now and then whether to stop with what there is.
    """
    deadline = time.monotonic() + time_limit
    found = []
    for change, links in _candidates(topology, certificate):
        if time.monotonic() >= deadline or cancel():
            break
        bound = prove(
            _faster(topology, links),
            demand,
            ranks=ranks,
            time_limit=deadline - time.monotonic(),
            seed=seed,
            cancel=cancel,
        )
        saves = max(1 - bound.seconds / bound_seconds, 0.0) if bound.optimal and bound_seconds > 0 else 0.0
        found.append(Upgrade(change=change, links=links, saves=saves, bound_seconds=bound.seconds))
    return sorted(found, key=lambda upgrade: (-upgrade.saves, len(upgrade.links), upgrade.links))


def _faster(topology: Topology, links: tuple[int, ...]) -> Topology:
    """The machine with some links at twice their rate."""
    chosen = set(links)
    return replace(
        topology,
        links=tuple(
            replace(link, bytes_per_s=2 * link.bytes_per_s) if position in chosen else link
            for position, link in enumerate(topology.links)
        ),
    )


def _candidates(topology: Topology, certificate: Certificate) -> list[tuple[str, tuple[int, ...]]]:
    """(change, links) of the groups that the bound hangs on most; the same links are tried once."""
    if certificate.lengths is None or not certificate.lengths.any():
        return []
    weight = certificate.lengths * topology.bytes_per_s
    weight = weight / weight.sum()
    levels: list[dict[tuple[str, ...], list[int]]] = [{}, {}, {}]
    for position in range(len(topology.links)):
        for level, key in zip(levels, _keys(topology, position), strict=True):
            level.setdefault(key, []).append(position)
    chosen: dict[tuple[int, ...], str] = {}
    for level in levels:
        parts = {key: float(weight[links].sum()) for key, links in level.items()}
        heaviest = sorted(parts, key=lambda key: (-parts[key], key))[:PER_LEVEL]
        for key in heaviest:
            links = tuple(level[key])
            if parts[key] >= LEAST and links not in chosen:
                chosen[links] = _words(topology, key, links)
    return [(change, links) for links, change in chosen.items()]


def _keys(topology: Topology, position: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What a link belongs to: alone or with its NIC, in its node, in the machine."""
    link = topology.links[position]
    ends = [topology.device(link.src), topology.device(link.dst)]
    nic = next((device for device in ends if device.kind is DeviceKind.NIC), None)
    if nic is not None:
        return ("nic", nic.id), ("nics", nic.node or ""), ("nics",)
    kind = link.link_class.value
    rate = f"{link.bytes_per_s:.0f}"
    return ("link", *sorted((link.src, link.dst)), kind), ("links", _node(ends), kind, rate), ("links", kind, rate)


def _node(ends: list[Device]) -> str:
    """The node both ends are on, or both nodes."""
    return " and ".join(sorted({device.node or device.id for device in ends}))


def _words(topology: Topology, key: tuple[str, ...], links: tuple[int, ...]) -> str:
    """The change, as somebody would say it."""
    if key[0] in ("nic", "nics"):
        nics = {
            end
            for position in links
            for end in (topology.links[position].src, topology.links[position].dst)
            if topology.device(end).kind is DeviceKind.NIC
        }
        if len(nics) == 1:
            return f"a second NIC beside {min(nics)}"
        where = f"of {key[1]}" if len(key) > 1 else "of the machine"
        return f"a second NIC beside each of the {len(nics)} {where}"
    if key[0] == "link":
        return f"a second {key[3]} link between {key[1]} and {key[2]}"
    rate = f"{float(key[-1]) / 1e9:.4g} GB/s"
    where = f"of {key[1]}" if len(key) == 4 else "of the machine"
    return f"twice the rate of the {np.unique(links).size} {key[-2]} links of {rate} {where}"
