"""Clusters of equal nodes on other networks than the catalog's one fabric."""

from __future__ import annotations

from collections import defaultdict

from probe.network import describe
from probe.network.join import join
from synth.topology import Device, Link, Topology, catalog


def networked(name: str, network: str) -> Topology:
    """The nodes of a catalog machine of the hgx families, joined as by ``synth probe --network``.

    Args:
        name: such as ``hgx-h100x16``.
        network: such as ``leaf-spine:4:2``, ``rails`` or ``isolated-rails``.
    """
    whole = catalog.build(name)
    devices: defaultdict[str, list[Device]] = defaultdict(list)
    links: defaultdict[str, list[Link]] = defaultdict(list)
    for device in whole.devices:
        if device.node is not None:
            devices[device.node].append(device)
    for link in whole.links:
        if "fabric" not in (link.src, link.dst):
            links[link.src.partition("/")[0]].append(link)
    nodes = [Topology(name=node, devices=tuple(devices[node]), links=tuple(links[node])) for node in whole.nodes]
    return join(nodes, describe.read(network), name=f"{name}+{network}")
