import json
from dataclasses import replace

import pytest

from probe import build
from probe.network import describe, infiniband
from probe.network.direct import nic_links, slot_shares
from probe.network.join import join
from probe.network.model import expand_hosts
from probe.nics import assign
from probe.sources import nccl_xml, nvidia_smi
from synth.errors import CaptureError
from synth.topology import LinkClass, Routes, Topology, rename_node
from tests.probe.captures import capture, needs_captures, text


@pytest.fixture(scope="module")
def node() -> Topology:
    return build.topology(nccl_xml.read(capture("222").read_bytes(), subject="222"))


def nodes(node: Topology, *names: str) -> list[Topology]:
    return [rename_node(node, "n0", name) for name in names]


def network_links(machine: Topology) -> dict[tuple[str, str], float]:
    return {(k.src, k.dst): k.bytes_per_s for k in machine.links if k.link_class is LinkClass.NETWORK}


pytestmark = needs_captures


def test_flat_joins_all_nics_to_one_switch_at_their_own_rate(node):
    machine = join(nodes(node, "a", "b"), describe.read("flat"))
    links = network_links(machine)
    assert links["a/nic0", "fabric"] == 48e9  # ports of 50 GB/s behind slots of 48
    assert len(links) == 2 * 16
    Routes.among(machine).require_connected()


def test_rails_join_equal_nics_and_a_spine_joins_the_rails(node):
    machine = join(nodes(node, "a", "b"), describe.read("rails"))
    links = network_links(machine)
    assert ("a/nic3", "rail3") in links
    assert ("b/nic3", "rail3") in links
    assert links["rail3", "spine"] == links["a/nic3", "rail3"] * 2
    routes = Routes.among(machine)
    assert len(routes.route(0, 8)) < len(routes.route(0, 9))


def test_isolated_rails_have_no_way_from_one_to_the_other(node):
    """The machine of users.tsv B13: what is not routed is not planned, and is told."""
    machine = join(nodes(node, "a", "b"), describe.read("isolated-rails"))
    assert "rails-isolated" in {f.code for f in machine.findings}
    routes = Routes.among(machine)
    crossing = [machine.links[p] for p in routes.route(0, 9)]
    assert [link.dst for link in crossing if link.dst.startswith("rail")] in (["rail0"], ["rail1"])
    assert not [d for d in machine.devices if d.id == "spine"]


def test_leaf_and_spine_with_oversubscription(node):
    machine = join(nodes(node, "a", "b", "c", "d"), describe.read("leaf-spine:2:4"))
    links = network_links(machine)
    assert links["leaf0", "spine"] == pytest.approx(2 * 8 * 48e9 / 4)
    assert ("c/nic0", "leaf1") in links
    Routes.among(machine).require_connected()


def test_routes_between_machines_follow_the_assignment():
    """Users.tsv B41: two GPUs equally near to two NICs must not both take the first."""
    one = build.topology(nvidia_smi.read(text("050"), subject="050"))
    machine = join(nodes(one, "a", "b"), describe.read("flat"))
    routes = Routes.among(machine)
    used = []
    for gpu in range(8):
        crossed = [machine.links[p] for p in routes.route(gpu, 8 + gpu)]
        used.append(next(link.src for link in crossed if link.dst == "fabric"))
        assert {machine.links[p].link_class for p in routes.route(gpu, (gpu + 1) % 8)} == {LinkClass.NVLINK}
    assert used == [f"a/nic{i}" for i in range(8)]


def test_ports_of_one_card_share_its_slot():
    one = build.topology(nvidia_smi.read(text("050"), subject="050"))
    assert slot_shares(one, {"n0/nic0", "n0/nic1"})["n0/nic0"] == 12e9
    assert slot_shares(one, {"n0/nic0"})["n0/nic0"] == 24e9
    links = network_links(join(nodes(one, "a", "b"), describe.read("flat")))
    assert links["a/nic0", "fabric"] == 12e9
    apart = build.topology(nvidia_smi.read(text("049"), subject="049"))  # NICs and GPUs behind one switch
    assert slot_shares(apart, {"n0/nic0"}) == {}


def test_machines_without_a_common_switch_get_no_ways_that_could_serve_as_shortcuts():
    one = build.topology(nvidia_smi.read(text("067"), subject="067"))
    assert nic_links(one, assign(one)) == []
    dgx1 = build.topology(nvidia_smi.read(text("043"), subject="043"))
    assert assign(dgx1)
    assert nic_links(dgx1, assign(dgx1)) == []


def test_rails_are_counted_by_gpu():
    one = build.topology(nvidia_smi.read(text("075"), subject="075"))
    links = network_links(join(nodes(one, "a", "b"), describe.read("rails")))
    # GPU0's near NIC is nic3, GPU1's nic5
    assert ("a/nic3", "rail0") in links
    assert ("a/nic5", "rail1") in links
    assert not [pair for pair in links if "a/nic0" in pair]


def test_slurm_trees_are_joined_up_to_the_core(node):
    network = describe.read(str(capture("412")))
    assert len(set(network.leaves.values())) == 12
    assert len({*network.parents.values()}) == 7  # six spines and a core
    machine = join(nodes(node, "srv1101", "srv1102", "srv1201", "srv2101"), network)
    links = network_links(machine)
    assert {dst for src, dst in links if src == "srv1101/nic0"} == {"switch.1.1"}
    assert links["switch.1.1", "switch.2.1"] == pytest.approx(2 * 8 * 48e9)
    assert ("switch.2.2", "switch.3.1") in links
    assert "network-assumed" in {f.code for f in machine.findings}
    Routes.among(machine).require_connected()


def test_slurm_blocks():
    network = describe.read(str(capture("411")))
    assert len(set(network.leaves.values())) == 12
    assert network.leaves["srv6208"] == "rack62"
    assert network.parents["rack11"] == "fabric"


def test_slurm_yaml_takes_the_default_topology():
    text = """
- topology: block
  block: {block_sizes: [2], blocks: [{block: b1, nodes: "node[1-2]"}]}
- topology: tree
  cluster_default: true
  tree:
    switches:
      - {switch: root, children: "s[1-2]"}
      - {switch: s1, nodes: "node[1-2]"}
      - {switch: s2, nodes: "node[3-4]"}
"""
    network = describe.parse(text, subject="topology.yaml")
    assert network.leaves == {"node1": "s1", "node2": "s1", "node3": "s2", "node4": "s2"}
    assert network.parents == {"s1": "root", "s2": "root"}
    assert describe.parse("- topology: x\n  flat: true\n", subject="y").default == "fabric"


@pytest.mark.parametrize(
    ("name", "count", "leaf"),
    [("small-tree", 6, "S2"), ("medium", 8, "sw11"), ("nvl72", 72, "leaf-1-1"), ("dual-xclr-irregular", None, None)],
)
def test_topograph_models(name, count, leaf):
    network = describe.read(str(next(capture("413").parent.glob(f"413-*-{name}.yaml"))))
    assert count is None or len(network.leaves) == count
    assert leaf is None or leaf in network.leaves.values()
    assert set(network.domains) <= set(network.leaves)
    assert network.parents


GRAPH = """{"instances": [
 {"id": "a", "network_layers": ["leaf-a", "spine"], "labels": {"accelerator.topograph.run/domain": "nvl-1"}},
 {"id": "b", "network_layers": ["leaf-b", "spine"], "labels": {"accelerator.topograph.run/domain": "nvl-1"}}]}"""


def test_topograph_graph_and_an_nvlink_domain_over_nodes(node):
    machine = join(nodes(node, "a", "b"), describe.parse(GRAPH, subject="graph"))
    routes = Routes.among(machine)
    assert {machine.links[p].link_class for p in routes.route(0, 8)} == {LinkClass.NVLINK}
    assert [d.id for d in machine.devices if "nvlink" in d.id or "nvswitch" in d.id] == ["nvlink-nvl-1"]


def test_node_labels_of_topograph_and_the_sentinel_clique(node):
    named = {f"network.topology.nvidia.com/{tier}": value for tier, value in {"leaf": "s1", "spine": "s2"}.items()}
    tiers = {"fabric.topograph.run/tier-1": "s2", "fabric.topograph.run/tier-0": "s1"}
    items = [
        {"metadata": {"name": "a", "labels": named | {"nvidia.com/gpu.clique": "0000.32766"}}},
        {"metadata": {"name": "b", "labels": tiers}},
    ]
    text = json.dumps({"items": items})
    network = describe.parse(text, subject="nodes")
    assert network.leaves == {"a": "s1", "b": "s1"}
    assert network.parents == {"s1": "s2"}
    assert network.domains == {}
    Routes.among(join(nodes(node, "a", "b"), network)).require_connected()


def test_ibnetdiscover():
    assert infiniband.read_fabric(capture("402").read_text()).switches == {}
    assert len(infiniband.read_fabric(capture("402").read_text()).adapters) == 1
    network = describe.read(str(capture("403")))
    assert network.ports["host2", "mlx5_5"].startswith("sw1")
    assert network.bytes_per_s == 50e9
    assert network.uplinks[network.leaves["host2"]] == pytest.approx(16 * 50e9)
    assert infiniband.read_fabric(capture("401").read_text()).switches


def test_rails_that_differ_between_machines_are_told(node):
    def crossed(device):
        swap = {"mlx5_0": "mlx5_3", "mlx5_3": "mlx5_0"}
        return replace(device, model=swap.get(device.model, device.model))

    one, other = nodes(node, "a", "b")
    other = replace(other, devices=tuple(map(crossed, other.devices)))
    machine = join([one, other], describe.read("rails"))
    assert [f.subject for f in machine.findings if f.code == "rails-crossed"] == ["b"]
    assert not [f for f in join(nodes(node, "a", "b"), describe.read("rails")).findings if f.code == "rails-crossed"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=x\n", "above itself"),
        ("SwitchName=a Nodes=n[1-x]\n", "no host range"),
        ("SwitchName=a Nodes=n[1-999999999]\n", "no host range"),
        ("SwitchName=a Nodes=x\nSwitchName=b Nodes=x\n", "under a and under b"),
        ("SwitchName=a Nodes=x\nPort=3\n", "line 2"),
        ("network: star\n", "must be one of"),
        ("network: flat\nspeed: 3\n", "the keys are"),
        ("network: leaf-spine\n", "nodes_per_leaf"),
        ("network: flat\nlatency_ns: -3\n", "latency_ns"),
        ("a: [", "YAML (line"),
        ("just words", "no network description"),
        ('{"instances": [{}]}', "has no id"),
        ('{"instances": []}', "places no node"),
    ],
)
def test_descriptions_that_make_no_sense(text, words):
    with pytest.raises(CaptureError) as caught:
        describe.parse(text, subject="net")
    assert words in caught.value.message


def test_nodes_that_the_network_does_not_know(node):
    with pytest.raises(CaptureError, match="not placed"):
        join(nodes(node, "a", "b"), describe.read(str(capture("412"))))
    with pytest.raises(CaptureError, match="have this name"):
        join(nodes(node, "a", "a"), describe.read("flat"))


def test_host_lists():
    assert expand_hosts("srv[08-10,12],login1", "x") == ["srv08", "srv09", "srv10", "srv12", "login1"]
    assert expand_hosts("r[1-2]n[1-2]", "x") == ["r1n1", "r1n2", "r2n1", "r2n2"]
