"""Which NIC each GPU uses: one matching for the whole machine, so that equal choices are spread over equal NICs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import networkx

from probe.facts import Distance
from probe.findings import finding
from synth.errors import TopologyError
from synth.topology import DeviceKind, Finding, LinkClass, Topology
from synth.topology.model import abridge

_COST = {Distance.PIX: 0, Distance.PXB: 1, Distance.PHB: 3, Distance.NODE: 4, Distance.SYS: 12}
_SHARE = 5
"""Sharing a NIC costs more than crossing the root complex, and less than crossing sockets."""
_SLOW = 8
"""Taking a NIC of less than half the usual rate (a management port)."""
_UNIT = 1_000_000
"""Of one point of cost; what is left below it decides among equals."""
_SOCKETS = re.compile(r"eth|en[opsx]|em[0-9]|bond|wl|lo$")


@dataclass(frozen=True, slots=True)
class Use:
    """One GPU's NIC.

    Attributes:
        gpu: device id.
        nic: device id.
        distance: between the two.
        sharing: how many GPUs use this NIC.
        near: all NICs as near as the nearest, by id.
    """

    gpu: str
    nic: str
    distance: Distance
    sharing: int
    near: tuple[str, ...]


def assign(topology: Topology, gpus: Sequence[str] | None = None, nics: Sequence[str] | None = None) -> tuple[Use, ...]:
    """Give each GPU of one machine a NIC: near ones first, shared as little as possible.

    Args:
        topology: one node, or a cluster whose nodes are matched one by one.
        gpus: only these (a process group); default all.
        nics: only these (a NIC list, by device id or by name such as ``mlx5_0``); default all but plain Ethernet.

    Returns:
        One use per GPU that has a NIC in its node, in the order of the GPUs.

    Raises:
        TopologyError: a name in ``nics`` is none.
    """
    chosen = usable(topology, nics)
    asked = topology.gpus if gpus is None else tuple(gpus)
    uses: dict[str, Use] = {}
    for node in topology.nodes:
        mine = [id for id in asked if topology.device(id).node == node]
        theirs = [id for id in chosen if topology.device(id).node == node]
        if mine and theirs:
            uses |= {use.gpu: use for use in _assign_node(topology, mine, theirs)}
    return tuple(uses[id] for id in asked if id in uses)


def usable(topology: Topology, names: Sequence[str] | None = None) -> list[str]:
    """Ids of the NICs that GPU traffic can use: those named, or all but plain Ethernet where there are others.

    Raises:
        TopologyError: a name is none.
    """
    all_nics = [device for device in topology.devices if device.kind is DeviceKind.NIC]
    if names is None:
        fast = [device.id for device in all_nics if not (device.model and _SOCKETS.match(device.model))]
        return fast or [device.id for device in all_nics]
    chosen = []
    for name in names:
        found = [device.id for device in all_nics if name in (device.id, device.model, device.id.rpartition("/")[2])]
        if not found:
            known = abridge([device.model or device.id for device in all_nics])
            raise TopologyError(f"{name}: is no NIC of {topology.name}; it has {known or 'none'}", subject=name)
        chosen += found
    return list(dict.fromkeys(chosen))


def _assign_node(topology: Topology, gpus: Sequence[str], nics: Sequence[str]) -> list[Use]:
    distances = {gpu: {nic: distance(topology, gpu, nic) for nic in nics} for gpu in gpus}
    rates = {nic: _rate(topology, nic) for nic in nics}
    usual = sorted(rates.values())[len(rates) // 2]
    prices = tuple(
        tuple(
            _UNIT * (_COST[distances[gpu][nic]] + _SLOW * (rates[nic] < usual / 2))
            + round(1000 * abs(row / len(gpus) - column / len(nics)))  # of equal choices, keep the order of both
            for column, nic in enumerate(nics)
        )
        for row, gpu in enumerate(gpus)
    )
    taken = [nics[column] for column in _cheapest(prices)]
    sharing = Counter(taken)
    uses = []
    for gpu, nic in zip(gpus, taken, strict=True):
        least = min(distances[gpu].values())
        near = tuple(other for other in nics if distances[gpu][other] == least)
        uses.append(Use(gpu, nic, distances[gpu][nic], sharing[nic], near))
    return uses


@lru_cache(maxsize=256)  # the nodes of a cluster mostly look alike
def _cheapest(prices: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The NIC of each GPU in a cheapest matching; each further GPU on a NIC costs more than the one before.

    Args:
        prices: [gpus, nics]
    """
    flow: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
    flow.add_node("all", demand=len(prices))
    for gpu, row in enumerate(prices):
        flow.add_node(("gpu", gpu), demand=-1)
        for nic, price in enumerate(row):
            flow.add_edge(("gpu", gpu), ("nic", nic), capacity=1, weight=price)
    for nic in range(len(prices[0])):
        for sharers in range(len(prices)):
            flow.add_edge(("nic", nic), "all", capacity=1, weight=_UNIT * _SHARE * sharers)
    _, paths = networkx.network_simplex(flow)
    chosen = ({nic: sum(units.values()) for (_, nic), units in paths["gpu", gpu].items()} for gpu in range(len(prices)))
    return tuple(max(units, key=units.__getitem__) for units in chosen)


def distance(topology: Topology, gpu: str, nic: str) -> Distance:
    """How far a NIC is from a GPU on PCIe; NODE for everything over one host, since a topology has no host bridges."""
    one, other = _ancestors(topology, gpu), _ancestors(topology, nic)
    if gpu in other or nic in one:
        return Distance.PIX  # a direct link, as the catalog has
    common = next((id for id in one if id in other), None)
    if common is None:
        return Distance.SYS
    if topology.device(common).kind is DeviceKind.HOST:
        return Distance.NODE
    return Distance.PIX if one.index(common) == 0 and other.index(common) == 0 else Distance.PXB


_HEIGHT = {DeviceKind.GPU: 0, DeviceKind.NIC: 1, DeviceKind.SWITCH: 2, DeviceKind.HOST: 3}


def _ancestors(topology: Topology, id: str) -> list[str]:
    """What stands above a device on PCIe, nearest first."""
    chain: list[str] = []
    here: str | None = id
    while here is not None and len(chain) < 64:
        ups = [
            topology.links[p].dst
            for p in topology.out_links[topology.index[here]]
            if topology.links[p].link_class is LinkClass.PCIE and _above(topology, here, topology.links[p].dst)
        ]
        here = next((up for up in ups if up not in chain), None)
        if here is not None:
            chain.append(here)
    return chain


def _above(topology: Topology, low: str, high: str) -> bool:
    one, other = _HEIGHT[topology.device(low).kind], _HEIGHT[topology.device(high).kind]
    # of two switches the one with the larger place in the document hangs below
    return one < other or (one == other == 2 and topology.index[low] > topology.index[high])


def _rate(topology: Topology, nic: str) -> float:
    return max((topology.links[p].bytes_per_s for p in topology.out_links[topology.index[nic]]), default=0.0)


def findings(topology: Topology, uses: Sequence[Use] | None = None) -> list[Finding]:
    """What the assignment shows: GPUs without a near NIC, NICs near no GPU, uneven shares."""
    uses = assign(topology) if uses is None else uses
    if not uses:
        return []
    found = []
    far = [use for use in uses if use.distance is Distance.SYS]
    for use in far:
        relays = [other.gpu for other in uses if other.distance < Distance.SYS]
        how = f"; relay over {abridge(relays, 4)}" if relays else ""
        found.append(finding("gpu-without-nic", use.gpu, f"{use.gpu} has no NIC on its side of the machine{how}"))
    near = {nic for use in uses for nic in use.near if use.distance < Distance.SYS}
    for device in map(topology.device, usable(topology)):
        if device.id not in near and not far:
            sides = [use for use in uses if distance(topology, use.gpu, device.id) < Distance.SYS]
            if not sides:
                text = f"{device.id} ({device.model}) is near no GPU" if device.model else f"{device.id} is near no GPU"
                found.append(finding("nic-far", device.id, text))
    shares = Counter(use.nic for use in uses)
    if max(shares.values()) > 1:
        crowded = [f"{nic} ({count} GPUs)" for nic, count in shares.items() if count > 1]
        text = f"GPUs share NICs: {abridge(crowded)}; each gets that part of the NIC's rate"
        found.append(finding("nic-shared", crowded[0].split()[0], text))
    if len(set(shares.values())) > 1 or len({use.distance for use in uses}) > 1:
        text = "GPUs do not have the same NIC bandwidth or distance: " + abridge(
            [f"{use.gpu.rpartition('/')[2]} {use.distance.name}" for use in uses], 16
        )
        found.append(finding("rails-uneven", uses[0].gpu, text))
    return found


def table(topology: Topology, uses: Sequence[Use]) -> str:
    """The assignment as text, one line per GPU."""
    lines = ["GPU to NIC"]
    for use in uses:
        device = topology.device(use.nic)
        name = f"{use.nic.rpartition('/')[2]}{f' ({device.model})' if device.model else ''}"
        others = [id.rpartition("/")[2] for id in use.near if id != use.nic]
        extra = f", as near: {' '.join(others)}" if others else ""
        shared = f", shared by {use.sharing}" if use.sharing > 1 else ""
        lines.append(f"  {use.gpu.rpartition('/')[2]:<6} {name}  {use.distance.name}{shared}{extra}")
    unused = [
        device.id.rpartition("/")[2]
        for device in topology.devices
        if device.kind is DeviceKind.NIC and device.id not in {use.nic for use in uses}
    ]
    return "\n".join(lines + ([f"  unused {' '.join(unused)}"] if unused else []))
