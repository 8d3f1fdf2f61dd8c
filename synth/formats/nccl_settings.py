"""NCCL settings that follow from a topology, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.topology import LinkClass, Routes, Topology
from synth.topology.model import DeviceKind


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable.

    Attributes:
        name: such as ``NCCL_CROSS_NIC``.
        value: as NCCL reads it.
        reason: one sentence: what in the topology asks for it.
    """

    name: str
    value: str
    reason: str


def settings(topology: Topology, groups: Sequence[Sequence[str]]) -> tuple[Setting, ...]:
    """Settings for communicators over these groups of GPUs; none where NCCL's own choice fits."""
    found = []
    nodes = [{topology.device(gpu).node for gpu in group} for group in groups]
    if any(len(names) > 1 for names in nodes):
        found += _network(topology)
    elif groups and all(joined_by_nvlink(topology, group) for group in groups):
        found.append(
            Setting("NCCL_P2P_LEVEL", "NVL", "every group is inside one NVLink island; anything slower is a fault")
        )
    if not _has_nvswitch(topology) and any(link.link_class is LinkClass.NVLINK for link in topology.links):
        found.append(Setting("NCCL_NVLS_ENABLE", "0", "no NVSwitch: in-switch multicast and reduction do not exist"))
    return tuple(found)


def render(found: Sequence[Setting]) -> str:
    """Shell lines, each with its reason above."""
    return "".join(f"# {setting.reason}\nexport {setting.name}={setting.value}\n" for setting in found)


def joined_by_nvlink(topology: Topology, group: Sequence[str]) -> bool:
    """Whether every pair of the group has a route of NVLink or chip-to-chip links only."""
    routes = Routes.among(topology, group)
    near = {LinkClass.NVLINK, LinkClass.C2C}
    return all(
        len(route) > 0 and all(topology.links[p].link_class in near for p in route.tolist())
        for a in range(routes.ranks)
        for b in range(routes.ranks)
        if a != b
        for route in (routes.route(a, b),)
    )


def _network(topology: Topology) -> list[Setting]:
    found = []
    rails = _rails(topology)
    nics = [device for device in topology.devices if device.kind is DeviceKind.NIC]
    if len(set(rails.values())) > 1:
        found.append(
            Setting(
                "NCCL_CROSS_NIC", "0", f"the NICs fall into {len(set(rails.values()))} rails without a path between"
            )
        )
    elif len({nic.node for nic in nics}) > 1:
        found.append(Setting("NCCL_CROSS_NIC", "2", "every NIC reaches every other, so rings may change rails"))
    fed = {link.src for link in topology.links if topology.index[link.dst] in rails}
    gpus = [device for device in topology.devices if device.kind is DeviceKind.GPU and device.node is not None]
    starved = [gpu.id for gpu in gpus if gpu.id not in fed]
    if nics and fed & {gpu.id for gpu in gpus} and starved:
        found.append(
            Setting(
                "NCCL_PXN_DISABLE",
                "0",
                f"{starved[0]}{' and others have' if len(starved) > 1 else ' has'} no NIC of its own and must reach "
                "one through a GPU that has",
            )
        )
    return found


def _rails(topology: Topology) -> dict[int, int]:
    """For each NIC that has a network link, its part of the network: what network links join, GPUs and hosts apart."""
    label = np.arange(len(topology.devices))
    network = [
        (topology.index[link.src], topology.index[link.dst])
        for link in topology.links
        if link.link_class is LinkClass.NETWORK
    ]
    changed = True
    while changed:
        changed = False
        for a, b in network:
            low = min(label[a], label[b])
            if label[a] != low or label[b] != low:
                label[a] = label[b] = low
                changed = True
    ends = {end for pair in network for end in pair}
    return {end: int(label[end]) for end in sorted(ends) if topology.devices[end].kind is DeviceKind.NIC}


def _has_nvswitch(topology: Topology) -> bool:
    switches = {device.id for device in topology.devices if device.kind is DeviceKind.SWITCH}
    return any(link.link_class is LinkClass.NVLINK and link.dst in switches for link in topology.links)
