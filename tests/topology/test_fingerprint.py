import random
from dataclasses import replace

import pytest

from synth import topology
from synth.topology import Topology, catalog

SMALL = ["asym8", "ndv2x1", "ndv2x2", "dgx2x2", "hgx-h100x2", "mi250x1", "mesh5x5", "torus3x3x3"]


def relabel(machine: Topology, seed: int) -> Topology:
    """The same machine with ids permuted inside each kind and node, and the document shuffled."""
    rng = random.Random(seed)
    renamed: dict[str, str] = {}
    for node in (*machine.nodes, None):
        for kind in {device.kind for device in machine.devices}:
            ids = [d.id for d in machine.devices if d.node == node and d.kind is kind]
            renamed.update(zip(ids, rng.sample(ids, len(ids)), strict=True))
    devices = [replace(d, id=renamed[d.id]) for d in machine.devices]
    links = [replace(link, src=renamed[link.src], dst=renamed[link.dst]) for link in machine.links]
    rng.shuffle(devices)
    rng.shuffle(links)
    return replace(machine, devices=tuple(devices), links=tuple(links))


@pytest.mark.parametrize("name", SMALL)
def test_names_and_order_do_not_matter(name: str) -> None:
    machine = catalog.build(name)
    for seed in range(5):
        assert relabel(machine, seed).fingerprint == machine.fingerprint
    assert replace(machine, name="other").fingerprint == machine.fingerprint
    assert topology.rename_node(machine, "n0", "zz-last").fingerprint == machine.fingerprint


@pytest.mark.parametrize("name", SMALL)
def test_every_link_matters(name: str) -> None:
    machine = catalog.build(name)
    rng = random.Random(1)
    for position in rng.sample(range(len(machine.links)), 5):
        links = list(machine.links)
        links[position] = replace(links[position], bytes_per_s=links[position].bytes_per_s - 1)
        assert replace(machine, links=tuple(links)).fingerprint != machine.fingerprint
        del links[position]
        assert replace(machine, links=tuple(links)).fingerprint != machine.fingerprint


def test_catalog_machines_are_all_different() -> None:
    assert len({catalog.build(name).fingerprint for name in catalog.names()}) == len(catalog.names())


def test_provenance_does_not_matter() -> None:
    machine = catalog.build("ndv2x1")
    links = tuple(replace(link, source="measured", confidence=topology.Confidence.MEASURED) for link in machine.links)
    devices = tuple(replace(d, uuid=f"GPU-{d.id}", pci="0000:00:00.0", model="V100") for d in machine.devices)
    assert replace(machine, links=links, devices=devices).fingerprint == machine.fingerprint


def test_twins_of_the_same_degree_are_told_apart() -> None:
    """Two triangles and a hexagon look alike to colour refinement; their fingerprints differ."""

    def ring(*cycles: list[int]) -> Topology:
        gpus = tuple(topology.Device(id=f"n0/gpu{g}", kind=topology.DeviceKind.GPU, node="n0") for g in range(6))
        links = tuple(
            topology.Link(
                src=f"n0/gpu{a}", dst=f"n0/gpu{b}", link_class=topology.LinkClass.NVLINK, bytes_per_s=1, latency_ns=0
            )
            for cycle in cycles
            for x, y in zip(cycle, cycle[1:] + cycle[:1], strict=True)
            for a, b in ((x, y), (y, x))
        )
        return Topology(name="ring", devices=gpus, links=links)

    assert ring([0, 1, 2, 3, 4, 5]).fingerprint == ring([0, 3, 1, 4, 2, 5]).fingerprint
    assert ring([0, 1, 2, 3, 4, 5]).fingerprint != ring([0, 1, 2], [3, 4, 5]).fingerprint
