"""Problems that people reported (``users.tsv``): each that is about topology gets the answer it asks for."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from probe import build, nics
from probe.facts import SWITCHED, Bundle, Distance, Facts, Gpu, Nic, Path
from probe.merge import merge
from probe.sources import nccl_xml, nvml, sniff
from synth.topology import LinkClass, Routes, Topology, catalog
from tests.probe import fakes
from tests.probe.captures import DATA, capture, needs_captures

pytestmark = needs_captures


def facts(number: str) -> Facts:
    return sniff.read(capture(number).read_bytes(), subject=number)


def machine(number: str) -> Topology:
    return build.topology(facts(number))


def subjects(topology: Topology, code: str) -> list[str]:
    return [f.subject for f in topology.findings if f.code == code]


def rails(number: str) -> dict[str, str]:
    built = machine(number)
    return {use.gpu.rpartition("/")[2]: use.nic.rpartition("/")[2] for use in nics.assign(built)}


COVERED = """
B03 B05 B08 B09 B11 B12 B13 B21 B23 B24 B25 B26 B27 B29 B31 B33 B34 B35 B37 B41 B42 B43 B62 B63 B65 B66 B67 B68 B69 B71
B72 B73 B75 B76 B77 B79
"""
# B65, B66 and B79 are answered by measuring each pair and checking its bytes: test_measure.py
ELSEWHERE = "B15 B17 B45 B47 B49 B51 B53 B55 B57 B59 B61"
"""Answered by the solver, the executor, the formats or the placement."""


def test_every_row_is_answered_here_or_belongs_to_another_part():
    with open(DATA / "users.tsv", encoding="utf-8", newline="") as file:
        ids = {row["id"] for row in csv.DictReader(file, delimiter="\t")}
    assert ids == {*COVERED.split(), *ELSEWHERE.split()}


def test_b03_a_pair_with_three_lanes_is_a_partly_seated_bridge():
    assert subjects(machine("034"), "nvlink-fewer") == ["n0/gpu0", "n0/gpu1"]
    known = facts("034")
    known = replace(known, gpus=tuple(replace(gpu, model="NVIDIA GeForce RTX 3090") for gpu in known.gpus))
    told = [f.message for f in build.topology(known).findings if f.code == "nvlink-fewer"]
    assert "3 of 4" in told[0]


def test_b05_rails_follow_the_pix_cells_and_not_the_index():
    found = rails("004")
    assert {gpu: found[gpu] for gpu in ("gpu0", "gpu1", "gpu2", "gpu3", "gpu4")} == {
        "gpu0": "nic2",
        "gpu1": "nic4",
        "gpu2": "nic6",
        "gpu3": "nic8",
        "gpu4": "nic1",
    }


def test_b08_gpus_without_a_near_nic_are_named_with_their_relays():
    built = machine("097")
    assert subjects(built, "gpu-without-nic") == ["n0/gpu0", "n0/gpu3"]
    text = next(f.message for f in built.findings if f.code == "gpu-without-nic")
    assert "n0/gpu1, n0/gpu2" in text


def test_b09_each_group_gets_its_own_nic_report():
    built = machine("070")
    uses = nics.assign(built, gpus=["n0/gpu0", "n0/gpu1"])
    assert sorted(use.nic for use in uses) == ["n0/nic0", "n0/nic1"]
    assert all(use.near == ("n0/nic0", "n0/nic1") for use in uses)
    shared = nics.assign(built, gpus=["n0/gpu0", "n0/gpu1"], nics=["mlx5_0"])
    assert [use.sharing for use in shared] == [2, 2]


def test_b11_a_nic_list_that_leaves_gpus_without_a_near_nic_is_told():
    built = machine("135")
    uses = nics.assign(built, nics=["NIC1", "NIC2"] if "NIC1" in {d.model for d in built.devices} else ["nic1", "nic2"])
    assert {f.subject for f in nics.findings(built, uses) if f.code == "gpu-without-nic"} == set(built.gpus)


def test_b12_rails_of_a_machine_with_interleaved_nics():
    found = rails("095")
    assert {found[f"gpu{i}"] for i in range(4)} == {"nic1", "nic3", "nic4", "nic5"}
    assert {found[f"gpu{i}"] for i in range(4, 8)} == {"nic0", "nic2", "nic6", "nic7"}


def test_b21_b27_files_are_compared_with_the_machine_and_masks_with_each_other():
    live = nvml.read(fakes.FakeNvml([fakes.FakeGpu("00000000:0F:00.0", "GPU-a", name="NVIDIA H800")]))
    both = merge([live, facts("222")])
    assert len(both.gpus) == 1
    assert len([f for f in both.findings if f.code == "device-missing"]) == 7
    assert "cpu-masks-overlap" in {f.code for f in machine("213").findings}
    assert "cpu-masks-overlap" not in {f.code for f in machine("202").findings}


@pytest.mark.parametrize("state", [0, 1, 2])
def test_b23_b75_nvlink_is_not_used_until_the_fabric_is_complete(state):
    gpus = [fakes.FakeGpu(f"00000000:0{i}:00.0", f"GPU-{i}", fabric=(state, 0, bytes(16), 0)) for i in (1, 2)]
    built = build.topology(nvml.read(fakes.FakeNvml(gpus)))
    linked = {link.link_class for link in built.links}
    if state:  # 0 says that there is no fabric to wait for
        assert subjects(built, "fabric-not-ready") == ["n0/gpu0", "n0/gpu1"]
        assert LinkClass.NVLINK not in linked
    else:
        assert LinkClass.NVLINK in linked
    Routes.among(built).require_connected()


def test_b24_a_gpu_that_differs_from_its_siblings_is_named():
    known = facts("222")
    odd = tuple(replace(b, lanes=1) if b.gpu == "GPU7" else b for b in known.bundles or ())
    xml = (
        capture("222")
        .read_text()
        .replace(
            '<gpu dev="7" sm="90" rank="7" gdr="1">',
            '<gpu dev="7" sm="90" rank="7" gdr="1"><nvlink target="ffff:ff:ff.7" count="1"/></gpu><x>',
        )
    )
    assert odd != known.bundles
    strange = xml.replace("<x>", "<gpu>", 1).split("</system>")[0] + "</system>"
    read = nccl_xml.read(strange)
    assert {"target-unknown", "nvlink-fewer"} <= {f.code for f in read.findings if f.subject == "GPU7"}


def test_b25_a_subset_of_an_nvswitch_machine_stays_usable():
    built = machine("222")
    routes = Routes.among(built, ["n0/gpu0", "n0/gpu5"])
    assert {built.links[p].link_class for p in routes.route(0, 1)} == {LinkClass.NVLINK}


def test_b26_self_links_are_rejected_with_line_and_gpu():
    built = machine("204")
    assert len(subjects(built, "self-link")) == 4
    assert not [link for link in built.links if link.link_class is LinkClass.NVLINK]
    assert len([link for link in machine("227").links if link.link_class is LinkClass.NVLINK]) == 4


def test_b29_dead_links_lower_the_rate_and_name_the_gpu():
    gpus = [fakes.FakeGpu(f"00000000:0{i}:00.0", f"GPU-{i}") for i in range(1, 4)]
    gpus.append(fakes.FakeGpu("00000000:04:00.0", "GPU-4", up=12, down=6))
    built = build.topology(nvml.read(fakes.FakeNvml(gpus)))
    assert subjects(built, "nvlink-down") == ["n0/gpu3"]
    rate = {link.src: link.bytes_per_s for link in built.links if link.dst == "n0/nvswitch"}
    assert (rate["n0/gpu0"], rate["n0/gpu3"]) == (450e9, 300e9)
    assert subjects(machine("104"), "nvlink-down") == ["n0/gpu0"]


def test_b31_all_ones_remotes_are_one_switch_and_not_one_domain_each():
    built = build.topology(nccl_xml.read((DATA / "h200x2" / "nccl-topo.xml").read_bytes()))
    assert [d.id for d in built.devices if "nvswitch" in d.id] == ["n0/nvswitch"]
    assert subjects(built, "fabric-remote-unknown")


def test_b33_domains_are_cluster_and_clique_together():
    def gpu(number: int, cluster: int, clique: int) -> fakes.FakeGpu:
        fabric = (3, 0, bytes(15) + bytes([cluster]), clique)
        return fakes.FakeGpu(f"00000000:0{number}:00.0", f"GPU-{number}", fabric=fabric)

    built = build.topology(nvml.read(fakes.FakeNvml([gpu(1, 1, 5), gpu(2, 2, 5)])))
    assert len([d for d in built.devices if "nvswitch" in d.id]) == 2
    assert subjects(built, "fabric-split")


def test_b34_bridged_pairs_are_no_full_mesh_and_the_missing_pairs_are_named():
    text = [f.message for f in machine("055").findings if f.code == "nvlink-mesh-partial"]
    assert text
    assert all(pair in " ".join(text) for pair in ("GPU0-GPU2", "GPU0-GPU3", "GPU1-GPU2", "GPU1-GPU3"))


def test_b35_p2p_without_nvlink_is_told_as_separate_facts():
    assert subjects(machine("102"), "p2p-without-nvlink") == ["n0/gpu0"]


def test_b37_numa_decides_where_the_class_cannot():
    built = machine("002")
    assert subjects(built, "all-sys")
    home = {link.src: link.dst for link in built.links if link.link_class is LinkClass.PCIE and "gpu" in link.src}
    assert len({home[f"n0/gpu{i}"] for i in range(4)}) == 1
    assert home["n0/gpu0"] != home["n0/gpu4"]


def test_b41_gpus_as_near_to_two_nics_do_not_both_take_the_first():
    assert rails("050") == {f"gpu{i}": f"nic{i}" for i in range(8)}
    assert rails("049") == {f"gpu{i}": f"nic{i}" for i in range(8)}


def test_b42_b43_two_gpus_per_nic_are_told():
    built = machine("130")
    uses = nics.assign(built)
    assert {use.sharing for use in uses} == {2}
    assert {use.gpu for use in uses if use.distance is Distance.PIX} == {f"n0/gpu{i}" for i in (1, 3, 4, 6)}
    assert subjects(built, "nic-shared")
    assert not [f for f in built.findings if f.severity.value == "error"]


def test_b62_complete_dumps_are_read():
    for number in ("209", "210", "222"):
        assert len(machine(number).gpus) == 8


def test_b63_gpus_of_other_containers_are_marked():
    xml = capture("222").read_text().replace('<gpu dev="7"', '<gpu dev="-1"')
    read = nccl_xml.read(xml)
    assert [gpu.visible for gpu in read.gpus].count(False) == 1
    assert "gpu-hidden" in {f.code for f in read.findings}


def test_b67_the_class_of_each_pair_is_shown():
    routes = Routes.among(machine("067"))
    classes = {routes.topology.links[p].link_class for p in routes.route(0, 4)}
    assert LinkClass.SMP in classes
    assert LinkClass.SMP not in {routes.topology.links[p].link_class for p in routes.route(0, 1)}


def test_b68_islands_over_the_socket_link_are_bounded_by_it():
    built = machine("121")
    routes = Routes.among(built)
    assert min(built.links[p].bytes_per_s for p in routes.route(0, 4)) == 10e9


def test_b69_memory_only_numa_nodes_are_no_place_for_cpus():
    assert [gpu.numa for gpu in facts("014").gpus[:3]] == [0, 0, 1]
    assert subjects(machine("014"), "memory-numa")


def test_b71_the_limit_of_peers_is_told():
    assert subjects(machine("119"), "peer-limit") == ["n0/gpu0"]
    assert not subjects(machine("421"), "peer-limit")


def test_b72_three_times_six_lanes_are_direct_and_seven_times_eighteen_are_a_switch():
    assert not [d for d in machine("035").devices if "nvswitch" in d.id]
    assert [d for d in machine("075").devices if "nvswitch" in d.id]


def test_b73_links_say_that_nvlink_counts_its_nominal_rate():
    a100 = machine("037")
    assert {link.bytes_per_s for link in a100.links if link.link_class is LinkClass.NVLINK} == {300e9}


def test_b76_the_gpu_outside_the_fabric_is_named_and_the_rest_stays_planned():
    built = machine("138")
    assert subjects(built, "gpu-outside-fabric") == ["n0/gpu2"]
    routes = Routes.among(built, [gpu for gpu in built.gpus if gpu != "n0/gpu2"])
    assert {built.links[p].link_class for p in routes.route(0, 6)} == {LinkClass.NVLINK}


def test_b77_a_healthy_matrix_gets_no_fault():
    assert not [f for f in machine("049").findings if f.severity.value in ("error", "warning")]


def test_platform_limits_on_p2p():
    assert subjects(machine("108"), "p2p-disabled") == ["n0/gpu0:n0/gpu1"]
    assert subjects(machine("113"), "p2p-disabled")


def test_nics_that_are_down_or_slow_and_links_that_are_narrow():
    from probe.facts import PcieLink

    known = Facts(
        source="sysfs",
        gpus=(Gpu(name="GPU0", pcie=PcieLink(gts=32, width=8, most_gts=32, most_width=16)), Gpu(name="GPU1")),
        nics=(
            Nic(name="NIC0", device="mlx5_0", bytes_per_s=50e9, state="active"),
            Nic(name="NIC1", device="mlx5_1", bytes_per_s=25e9, state="active"),
            Nic(name="NIC2", device="mlx5_2", bytes_per_s=50e9, state="down"),
        ),
        paths={("GPU0", "GPU1"): Path(distance=Distance.PHB)},
        bundles=(Bundle(gpu="GPU0", peer=SWITCHED, lanes=18), Bundle(gpu="GPU1", peer=SWITCHED, lanes=18)),
    )
    built = build.topology(known)
    assert subjects(built, "pcie-degraded") == ["n0/gpu0"]
    assert subjects(built, "nic-slow") == ["n0/nic1"]
    assert subjects(built, "nic-down") == ["n0/nic2"]


def test_catalog_machines_get_their_own_nic_each():
    built = catalog.build("hgx-h100x2")
    uses = nics.assign(built)
    assert [(use.gpu, use.nic, use.distance) for use in uses[:2]] == [
        ("n0/gpu0", "n0/nic0", Distance.PIX),
        ("n0/gpu1", "n0/nic1", Distance.PIX),
    ]
    assert len({use.nic for use in uses}) == 16
