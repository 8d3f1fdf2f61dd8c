import pytest

from synth import topology
from synth.errors import InputError, TopologyError
from synth.topology import Device, DeviceKind, Link, LinkClass, Routes, Topology, catalog
from synth.topology.degrade import parse_factor


def node(name: str) -> Topology:
    """Two GPUs on an NVSwitch, each with its NIC."""
    devices = [Device(id=f"{name}/nvswitch", kind=DeviceKind.SWITCH, node=name)]
    links = []
    for g in range(2):
        devices.append(Device(id=f"{name}/gpu{g}", kind=DeviceKind.GPU, node=name))
        devices.append(Device(id=f"{name}/nic{g}", kind=DeviceKind.NIC, node=name))
        for a, b, rate in ((f"gpu{g}", "nvswitch", 450), (f"gpu{g}", f"nic{g}", 50)):
            for src, dst in ((a, b), (b, a)):
                links.append(
                    Link(
                        src=f"{name}/{src}",
                        dst=f"{name}/{dst}",
                        link_class=LinkClass.PCIE,
                        bytes_per_s=rate,
                        latency_ns=1,
                    )
                )
    return Topology(name=name, devices=tuple(devices), links=tuple(links))


def test_merged_nodes_reach_each_other_over_the_fabric() -> None:
    cluster = topology.merge([node("a"), node("b")])
    assert cluster.nodes == ("a", "b")
    routes = Routes.among(cluster)
    routes.require_connected()
    crossing = [cluster.links[p] for p in routes.route(0, 3).tolist()]
    assert [link.link_class.value for link in crossing] == ["pcie", "network", "network", "pcie"]
    assert {link.bytes_per_s for link in crossing} == {50}


def test_the_same_node_twice_is_refused() -> None:
    with pytest.raises(TopologyError, match="node a is described by 2"):
        topology.merge([node("a"), node("a")])


def test_merging_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least one"):
        topology.merge([])


def test_a_nic_that_hangs_on_nothing_is_found() -> None:
    lonely = Topology(name="c", devices=(Device(id="c/nic0", kind=DeviceKind.NIC, node="c"),), links=())
    cluster = topology.merge([node("a"), node("b"), lonely])
    assert [finding.code for finding in cluster.findings] == ["nic-unconnected"]


def test_rename_then_merge_equals_the_catalog() -> None:
    """Two single HGX nodes, renamed and merged, keep their devices apart."""
    one = catalog.build("hgx-h100x1")
    two = topology.merge([one, topology.rename_node(one, "n0", "n1")])
    assert len(two.gpus) == 16


def test_dead_and_slow_links() -> None:
    machine = catalog.build("hgx-h100x2")
    worse = topology.degrade(machine, {("n0/nic0", "fabric"): 0, ("fabric", "n1/nic3"): 0.5})
    assert len(worse.links) == len(machine.links) - 2
    rates = {(link.src, link.dst): link.bytes_per_s for link in worse.links}
    assert rates["n1/nic3", "fabric"] == rates["fabric", "n1/nic3"] == 25_000_000_000
    assert worse.fingerprint != machine.fingerprint


@pytest.mark.parametrize(
    ("pair", "factor", "message"),
    [
        (("n0/gpu0", "n0/gpu9"), 0.5, "no device n0/gpu9"),
        (("n0/gpu0", "n0/gpu6"), 0.5, "no such link"),
        (("n0/gpu0", "n0/gpu1"), 1.5, "from 0"),
        (("n0/gpu0", "n0/gpu1"), float("nan"), "from 0"),
    ],
)
def test_degrading_what_is_not_there(pair: tuple[str, str], factor: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        topology.degrade(catalog.build("ndv2x1"), {pair: factor})


def test_factors_as_people_type_them() -> None:
    assert parse_factor("n0/gpu0:n0/gpu4=0.5") == (("n0/gpu0", "n0/gpu4"), 0.5)
    assert parse_factor("a:b") == (("a", "b"), 0.0)
    for text in ("a", "a:b=x", ":b=1", ""):
        with pytest.raises(InputError, match="A:B=FACTOR"):
            parse_factor(text)
