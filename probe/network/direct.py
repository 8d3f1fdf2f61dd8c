"""Each GPU's own way to its NIC, so that routes between machines follow the assignment; what ports of a card share.

A route takes the fewest links and then the smallest ids; where several NICs are equally near it would send every GPU of
a machine through the first. A link from a GPU to the NIC it was assigned settles that. It stands for GPUDirect RDMA on
the PCIe path between the two, and is only added where no route inside the machine could be drawn through a NIC: where
all GPUs hang on one NVSwitch that is wider than the NICs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from probe.nics import Use
from synth.topology import Confidence, DeviceKind, Link, LinkClass, Topology
from synth.topology.paths import routes_from


def nic_links(part: Topology, uses: Sequence[Use]) -> list[Link]:
    """Links between GPUs and their NICs, both ways, with the rate and latency of the PCIe path; none where unsafe."""
    widest = _switched(part)
    if widest is None:
        return []
    present = {(link.src, link.dst) for link in part.links}
    links = []
    for use in uses:
        (path,) = routes_from(part, use.gpu, [use.nic])
        if path is None or (use.gpu, use.nic) in present:
            continue
        crossed = [part.links[position] for position in path]
        rate = min(link.bytes_per_s for link in crossed)
        if rate >= widest or any(link.link_class is LinkClass.NVLINK for link in crossed):
            continue
        for src, dst in ((use.gpu, use.nic), (use.nic, use.gpu)):
            links.append(
                Link(
                    src=src,
                    dst=dst,
                    link_class=LinkClass.PCIE,
                    bytes_per_s=rate,
                    latency_ns=sum(link.latency_ns for link in crossed),
                    source=f"GPU to NIC assignment, {use.distance.name}",
                    confidence=Confidence.INFERRED,
                )
            )
    return links


def slot_shares(part: Topology, used: Collection[str]) -> dict[str, float]:
    """For NICs that share a slot or a bridge with NICs only (ports of one card): their part of its way up.

    Args:
        part: one node.
        used: NICs that GPUs use; ports that nobody uses take nothing.
    """
    above: dict[str, str] = {}
    rates: dict[str, float] = {}
    below: dict[str, set[str]] = {}
    for link in part.links:
        if link.link_class is not LinkClass.PCIE:
            continue
        low, high = part.device(link.src).kind, part.device(link.dst).kind
        if high is DeviceKind.SWITCH and low in (DeviceKind.GPU, DeviceKind.NIC):
            below.setdefault(link.dst, set()).add(link.src)
            above[link.src] = link.dst
        elif low is DeviceKind.SWITCH and high in (DeviceKind.SWITCH, DeviceKind.HOST):
            rates[link.src] = max(rates.get(link.src, 0.0), link.bytes_per_s)
            below.setdefault(link.dst, set())
    shares = {}
    for nic, slot in above.items():
        sharers = below[slot]
        alone = all(part.device(id).kind is DeviceKind.NIC for id in sharers)
        if part.device(nic).kind is DeviceKind.NIC and alone and slot in rates:
            shares[nic] = rates[slot] / max(1, len(sharers & set(used)))
    return shares


def _switched(part: Topology) -> float | None:
    """Rate of the slowest GPU into the NVSwitch that all GPUs share; None where they share none."""
    into: dict[str, dict[str, float]] = {}
    for link in part.links:
        if link.link_class is LinkClass.NVLINK:
            into.setdefault(link.src, {})[link.dst] = link.bytes_per_s
    if not part.gpus or any(gpu not in into for gpu in part.gpus):
        return None
    shared = set.intersection(*(set(into[gpu]) for gpu in part.gpus)) - set(part.gpus)
    return max((min(into[gpu][switch] for gpu in part.gpus) for switch in shared), default=None)
