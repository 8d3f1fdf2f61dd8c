import pytest

from probe import build
from probe.sources import nccl_xml, nvidia_smi
from synth import topology
from synth.topology import DeviceKind, LinkClass, Routes, Topology, catalog
from tests.probe.captures import DATA, capture, needs_captures, text

pytestmark = needs_captures


def smi(number: str) -> Topology:
    return build.topology(nvidia_smi.read(text(number), subject=number))


def xml(number: str) -> Topology:
    return build.topology(nccl_xml.read(capture(number).read_bytes(), subject=number))


def nvlink_part(machine: Topology) -> Topology:
    gpus = tuple(device for device in machine.devices if device.kind is DeviceKind.GPU)
    links = tuple(link for link in machine.links if link.link_class is LinkClass.NVLINK)
    return Topology(name="nvlink", devices=gpus, links=links)


@pytest.mark.parametrize("number", ["025", "043", "069"])
def test_a_dgx1_matrix_has_the_nvlinks_of_the_catalog(number):
    assert nvlink_part(smi(number)).fingerprint == catalog.build("ndv2x1").fingerprint


@pytest.mark.parametrize("number", ["025", "043", "049", "050", "069", "075", "135"])
def test_every_pair_of_gpus_is_joined_and_pairs_without_nvlink_go_over_the_sockets(number):
    machine = smi(number)
    routes = Routes.among(machine)
    assert routes.exists.sum() == 8 * 7
    classes = {link.link_class for link in machine.links}
    assert {LinkClass.NVLINK, LinkClass.PCIE, LinkClass.SMP} <= classes


def test_dgx1_pairs_without_nvlink_cross_both_sockets():
    machine = smi("025")
    routes = Routes.among(machine)
    crossed = [machine.links[p].link_class for p in routes.route(0, 5)]
    assert crossed == [LinkClass.PCIE, LinkClass.SMP, LinkClass.PCIE]


@pytest.mark.parametrize(("number", "rate", "nics"), [("049", 200e9, 8), ("050", 300e9, 8), ("075", 450e9, 10)])
def test_machines_with_nvswitches_get_one_switch_with_all_lanes_of_each_gpu(number, rate, nics):
    machine = smi(number)
    into = [link for link in machine.links if link.dst == "n0/nvswitch"]
    assert [link.src for link in into] == [f"n0/gpu{i}" for i in range(8)]
    assert {link.bytes_per_s for link in into} == {rate}
    assert sum(device.kind is DeviceKind.NIC for device in machine.devices) == nics


def test_dual_port_nics_share_their_slot_below_the_switch_of_two_gpus():
    machine = smi("050")
    routes = {(link.src, link.dst) for link in machine.links}
    slot = next(dst for src, dst in routes if src == "n0/nic0")
    above = next(dst for src, dst in routes if src == slot and not dst.startswith("n0/nic"))
    assert (slot, above) in routes
    assert {("n0/gpu0", above), ("n0/gpu1", above), ("n0/nic1", slot)} <= routes
    assert above.startswith("n0/pcie")


def test_far_nics_hang_on_a_socket_of_their_own():
    machine = smi("135")
    hosts = {link.dst for link in machine.links if link.src == "n0/gpu0" and "host" in link.dst}
    tree = {link.src: link.dst for link in machine.links if link.link_class is LinkClass.PCIE and "nic" in link.src}
    assert tree["n0/nic1"] == tree["n0/nic2"]
    assert tree["n0/nic1"] not in {tree["n0/nic0"], tree["n0/nic3"]} | hosts


@pytest.mark.parametrize(
    ("number", "rate"), [("209", 450e9), ("210", 450e9), ("222", 200e9)]
)  # 18 links per GPU as 5+5+4+4, and 8 as 2+2+2+2
def test_nccl_xml_adds_up_the_links_into_the_switches(number, rate):
    machine = xml(number)
    assert {link.bytes_per_s for link in machine.links if link.dst == "n0/nvswitch"} == {rate}
    assert Routes.among(machine).exists.sum() == 8 * 7


def test_nccl_xml_with_bridged_pairs_gets_direct_links():
    machine = xml("227")
    pairs = {(link.src, link.dst) for link in machine.links if link.link_class is LinkClass.NVLINK}
    assert pairs == {(f"n0/gpu{a}", f"n0/gpu{b}") for a, b in [(0, 1), (1, 0), (2, 3), (3, 2)]}


def test_every_link_says_where_it_comes_from_and_how_sure_it_is():
    for machine in (smi("025"), xml("222")):
        assert all(link.source and link.confidence for link in machine.links)


def test_the_two_h200_look_alike_in_matrix_and_xml():
    one = build.topology(nvidia_smi.read((DATA / "h200x2" / "topo-m.txt").read_text(), subject="topo-m"))
    two = build.topology(nccl_xml.read((DATA / "h200x2" / "nccl-topo.xml").read_bytes(), subject="xml"))
    for machine in (one, two):
        routes = Routes.among(machine)
        assert min(machine.links[p].bytes_per_s for p in routes.route(0, 1)) == 450e9


def test_documents_are_the_same_bytes_each_time():
    assert topology.dumps(smi("075")) == topology.dumps(smi("075"))
