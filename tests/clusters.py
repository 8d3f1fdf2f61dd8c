"""Machines that the catalog does not have: clusters on other networks, and meshes drawn at random."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np

from probe.network import describe
from probe.network.join import join
from synth.topology import Device, DeviceKind, Link, LinkClass, Topology, catalog


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


def random_mesh(gpus: int, seed: int) -> Topology:
    """A node whose GPUs form a ring in some order, with as many chords again, of one to three NVLinks of 25 GB/s."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(gpus).tolist()
    ring = {tuple(sorted(pair)) for pair in zip(order, order[1:] + order[:1], strict=True)}
    chords = [pair for pair in combinations(range(gpus), 2) if pair not in ring]
    chosen = rng.choice(len(chords), size=min(gpus, len(chords)), replace=False)
    names = [f"n0/gpu{number}" for number in range(gpus)]
    links = []
    for a, b in sorted(ring | {chords[place] for place in chosen}):
        rate = int(rng.integers(1, 4)) * 25 * 10**9
        for src, dst in ((a, b), (b, a)):
            links.append(
                Link(src=names[src], dst=names[dst], link_class=LinkClass.NVLINK, bytes_per_s=rate, latency_ns=700)
            )
    devices = tuple(Device(id=name, kind=DeviceKind.GPU, node="n0") for name in names)
    return Topology(name=f"random-mesh-{seed}", devices=devices, links=tuple(links))
