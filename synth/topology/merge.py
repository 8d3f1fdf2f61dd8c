"""Joining the reports of several nodes into one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from synth.errors import TopologyError
from synth.topology.model import Confidence, Device, DeviceKind, Finding, Link, LinkClass, Severity, Topology


def merge(
    parts: Sequence[Topology],
    *,
    name: str = "cluster",
    fabric: str | None = "fabric",
    network_latency_ns: float = 1300,
) -> Topology:
    """Put nodes side by side and join their NICs to one fabric switch.

    A NIC without a network link gets one in each direction, at the rate of the links it has to its node. Parts that
    already bring a network keep it; devices without a node (switches) that several parts name are the same device.

    Args:
        parts: one topology per node, or clusters; node names must differ.
        name: of the result.
        fabric: id of the switch all NICs hang on; None joins nothing.
        network_latency_ns: between a NIC and the fabric.

    Raises:
        TopologyError: two parts describe the same node, or there is nothing to merge.
    """
    if not parts:
        raise TopologyError("merge: needs at least one topology", subject="merge")
    owners = Counter(node for part in parts for node in part.nodes)
    doubled = [node for node, count in owners.items() if count > 1]
    if doubled:
        raise TopologyError(
            f"merge: node {doubled[0]} is described by {owners[doubled[0]]} of the inputs; each node once",
            subject=doubled[0],
        )
    devices = {device.id: device for part in parts for device in part.devices}
    links = list(dict.fromkeys(link for part in parts for link in part.links))
    findings = [finding for part in parts for finding in part.findings]
    if fabric is not None and len(owners) > 1:
        added, remarks = _uplinks(list(devices.values()), links, fabric, network_latency_ns)
        if added:
            devices.setdefault(fabric, Device(id=fabric, kind=DeviceKind.SWITCH))
        links += added
        findings += remarks
    return Topology(name=name, devices=tuple(devices.values()), links=tuple(links), findings=tuple(findings))


def _uplinks(
    devices: Sequence[Device], links: Sequence[Link], fabric: str, latency_ns: float
) -> tuple[list[Link], list[Finding]]:
    """Network links for NICs that have none."""
    networked = {end for link in links if link.link_class is LinkClass.NETWORK for end in (link.src, link.dst)}
    widest: dict[str, float] = {}
    for link in links:
        widest[link.src] = max(widest.get(link.src, 0.0), link.bytes_per_s)
    added: list[Link] = []
    findings: list[Finding] = []
    for device in devices:
        if device.kind is not DeviceKind.NIC or device.id in networked:
            continue
        if device.id not in widest:
            findings.append(
                Finding(
                    code="nic-unconnected",
                    severity=Severity.WARNING,
                    subject=device.id,
                    message=f"{device.id} has no link to its node; it was left off the fabric",
                )
            )
            continue
        for src, dst in ((device.id, fabric), (fabric, device.id)):
            added.append(
                Link(
                    src=src,
                    dst=dst,
                    link_class=LinkClass.NETWORK,
                    bytes_per_s=widest[device.id],
                    latency_ns=latency_ns,
                    source="merge: rate of the NIC's own slot",
                    confidence=Confidence.ASSUMED,
                )
            )
    return added, findings


def rename_node(topology: Topology, old: str, new: str) -> Topology:
    """The topology with one node called otherwise; ids ``old/...`` become ``new/...``."""

    def renamed(id: str) -> str:
        return f"{new}/{id[len(old) + 1 :]}" if id.startswith(f"{old}/") else id

    return replace(
        topology,
        devices=tuple(
            replace(device, id=renamed(device.id), node=new if device.node == old else device.node)
            for device in topology.devices
        ),
        links=tuple(replace(link, src=renamed(link.src), dst=renamed(link.dst)) for link in topology.links),
        findings=tuple(replace(finding, subject=renamed(finding.subject)) for finding in topology.findings),
    )
