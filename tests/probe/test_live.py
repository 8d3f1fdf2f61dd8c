import threading
from pathlib import Path

import pytest

from probe import build, live
from probe.facts import SWITCHED, Facts
from probe.merge import merge
from probe.sources import nccl_xml, nvidia_smi, nvml, sysfs
from synth.errors import CaptureError
from synth.topology import LinkClass, Routes
from tests.probe import fakes
from tests.probe.captures import DATA, needs_captures

H200 = [
    fakes.FakeGpu("00000000:00:07.0", "GPU-b"),
    fakes.FakeGpu("00000000:00:06.0", "GPU-a"),
]


def test_nvml_orders_by_bus_id_and_takes_the_all_ones_remote_as_a_switch():
    facts = nvml.read(fakes.FakeNvml(H200))
    assert [(gpu.name, gpu.pci, gpu.uuid) for gpu in facts.gpus] == [
        ("GPU0", "0000:00:06.0", "GPU-a"),
        ("GPU1", "0000:00:07.0", "GPU-b"),
    ]
    assert {(bundle.gpu, bundle.peer, bundle.lanes) for bundle in facts.bundles or ()} == {
        ("GPU0", SWITCHED, 18),
        ("GPU1", SWITCHED, 18),
    }
    assert [f.code for f in facts.findings] == ["fabric-remote-unknown"]


def test_nvml_is_closed_again_and_inactive_links_are_not_counted():
    library = fakes.FakeNvml([fakes.FakeGpu("00000000:00:06.0", "GPU-a", up=4, down=2)])
    facts = nvml.read(library)
    assert not library.open
    assert facts.ports["GPU0"].up == (0, 1, 2, 3)
    assert facts.ports["GPU0"].down == (4, 5)


def test_nvml_finds_direct_links_by_the_bus_id_of_the_far_end():
    one = fakes.FakeGpu("00000000:01:00.0", "GPU-a", up=2, remote="00000000:02:00.0")
    other = fakes.FakeGpu("00000000:02:00.0", "GPU-b", up=2, remote="00000000:01:00.0")
    bundles = nvml.read(fakes.FakeNvml([one, other])).bundles or ()
    assert {(b.gpu, b.peer, b.lanes) for b in bundles} == {("GPU0", "GPU1", 2), ("GPU1", "GPU0", 2)}


def test_nvml_tells_of_mig_and_of_a_missing_driver():
    facts = nvml.read(fakes.FakeNvml([fakes.FakeGpu("00000000:00:06.0", "GPU-a", mig=1)]))
    assert "mig-enabled" in {f.code for f in facts.findings}
    with pytest.raises(CaptureError, match="no GPU"):
        nvml.read(fakes.FakeNvml([]))


def test_chip_to_chip_links_lead_to_the_socket():
    grace = [fakes.FakeGpu(f"0000000{i}:01:00.0", f"GPU-{i}", name="NVIDIA GB200", chips=10) for i in (8, 9)]
    machine = build.topology(nvml.read(fakes.FakeNvml(grace, level=50)))
    rates = {(k.src, k.dst): k.bytes_per_s for k in machine.links if k.link_class is LinkClass.C2C}
    assert rates["n0/gpu0", "n0/host0"] == rates["n0/host0", "n0/gpu0"] == 450e9
    assert {k.bytes_per_s for k in machine.links if k.link_class is LinkClass.NVLINK} == {18 * 25e9}


def test_islands_are_told_apart_by_cluster_and_clique():
    def gpu(number: int, clique: int) -> fakes.FakeGpu:
        return fakes.FakeGpu(f"00000000:0{number}:00.0", f"GPU-{number}", fabric=(3, 0, bytes(15) + b"\x07", clique))

    split = build.topology(nvml.read(fakes.FakeNvml([gpu(1, 1), gpu(2, 1), gpu(3, 2), gpu(4, 2)])))
    assert {link.dst for link in split.links if "nvswitch" in link.dst} == {"n0/nvswitch0", "n0/nvswitch1"}
    none = build.topology(nvml.read(fakes.FakeNvml([gpu(1, 32766), gpu(2, 32766)])))
    assert {link.dst for link in none.links if "nvswitch" in link.dst} == {"n0/nvswitch"}


TREE = {
    "pci0000:00/0000:00:01.0": fakes.BRIDGE,
    "pci0000:00/0000:00:01.0/0000:01:00.0": fakes.BRIDGE,
    "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0": fakes.GPU,
    "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0": fakes.NIC,
    "pci0000:80/0000:80:01.0": fakes.BRIDGE | {"numa_node": "1"},
    "pci0000:80/0000:80:01.0/0000:81:00.0": fakes.GPU | {"numa_node": "1", "current_link_width": "8"},
}


def test_sysfs_gives_the_tree_with_real_link_speeds(tmp_path: Path):
    nic = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0"
    root = fakes.sysfs(tmp_path, TREE, infiniband={"mlx5_0": (nic, "400 Gb/sec (4X NDR)", "4: ACTIVE")})
    facts = sysfs.read(root)
    assert [(gpu.pci, gpu.numa, gpu.pcie.width) for gpu in facts.gpus] == [
        ("0000:02:00.0", 0, 16),
        ("0000:81:00.0", 1, 8),
    ]
    assert [(nic.device, nic.bytes_per_s, nic.state) for nic in facts.nics] == [("mlx5_0", 50e9, "active")]
    machine = build.topology(facts)
    rates = {(link.src, link.dst): link.bytes_per_s for link in machine.links}
    assert rates["n0/gpu0", "n0/pcie0"] == 48e9
    assert rates["n0/nic0", "n0/pcie0"] == 48e9  # a port of 50 GB/s behind a slot that carries 48
    assert rates["n0/gpu1", "n0/host1"] == 24e9
    assert rates["n0/host0", "n0/host1"] == 22e9  # a Sapphire Rapids model number
    Routes.among(machine).require_connected()


def test_sysfs_sees_access_control_virtual_machines_and_nothing_where_there_is_no_gpu(tmp_path: Path):
    root = fakes.sysfs(
        tmp_path / "a", TREE, acs=("pci0000:00/0000:00:01.0/0000:01:00.0",), cpuinfo="flags : fpu hypervisor\n"
    )
    group = root / "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/iommu_group"
    group.mkdir()
    (group / "type").write_text("DMA-FQ\n")
    noticed = {f.code: f.subject for f in sysfs.read(root).findings}
    assert {"acs-enabled", "virtual-machine", "iommu-translating"} <= set(noticed)
    assert noticed["iommu-translating"] == "GPU1"
    with pytest.raises(CaptureError, match="no GPU"):
        sysfs.read(fakes.sysfs(tmp_path / "b", {}))
    with pytest.raises(CaptureError, match="not mounted"):
        sysfs.read(tmp_path / "c")


FLAT = {
    "pci0000:00/0000:00:06.0": fakes.GPU | {"numa_node": "-1"},
    "pci0000:00/0000:00:07.0": fakes.GPU | {"numa_node": "-1"},
}


@needs_captures
def test_live_sources_matrix_and_nccls_dump_of_one_machine_agree(tmp_path: Path):
    driver = nvml.read(fakes.FakeNvml(H200))
    tree = sysfs.read(fakes.sysfs(tmp_path, FLAT))
    matrix = nvidia_smi.read((DATA / "h200x2" / "topo-m.txt").read_text())
    dump = nccl_xml.read((DATA / "h200x2" / "nccl-topo.xml").read_bytes())
    merged = merge([driver, tree, matrix, dump])
    assert "sources-disagree" not in {f.code for f in merged.findings}
    machine = build.topology(merge([driver, tree]), node="n0")
    other = build.topology(dump)
    for one in (machine, other, build.topology(merged)):
        routes = Routes.among(one)
        assert [one.links[p].bytes_per_s for p in routes.route(0, 1)] == [450e9, 450e9]


def test_gpus_that_a_container_hides_are_left_out(tmp_path: Path):
    tree = sysfs.read(fakes.sysfs(tmp_path, FLAT))
    driver = nvml.read(fakes.FakeNvml(H200[:1]))
    merged = merge([driver, live.only_visible(tree, driver)])
    assert [gpu.pci for gpu in merged.gpus] == ["0000:00:07.0"]
    assert build.topology(merged).gpus == ("n0/gpu0",)


def test_a_machine_without_a_gpu_says_what_each_source_said(monkeypatch: pytest.MonkeyPatch):
    def missing() -> None:
        raise CaptureError("nvml: no driver", subject="nvml")

    monkeypatch.setattr(nvml, "read", missing)
    monkeypatch.setattr(live, "nvidia_smi_output", missing)
    monkeypatch.setattr(sysfs, "read", missing)
    with pytest.raises(CaptureError, match="no driver"):
        live.read()


def test_a_source_that_hangs_is_left_behind():
    release = threading.Event()

    def hangs() -> Facts:
        release.wait(30)
        raise AssertionError("nobody waits for this")

    with pytest.raises(CaptureError, match="did not answer within"):
        live.within(0.05, hangs)
    release.set()


NVIDIA_SMI = """#!/bin/sh
case "$*" in
  "topo -m") printf '\\tGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\n'
             printf 'GPU0\\t X \\tNV4\\t0-7\\t0\\nGPU1\\tNV4\\t X \\t0-7\\t0\\n';;
  "-L") printf 'GPU 0: NVIDIA RTX A6000 (UUID: GPU-a)\\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-b)\\n';;
  --query-gpu*) printf '0, 00000000:01:00.0\\n1, 00000000:02:00.0\\n';;
  "topo -p2p r") printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tOK\\t\\n GPU1\\tOK\\tX\\t\\n';;
  *) echo "unknown option" >&2; exit 6;;
esac
"""


def test_nvidia_smi_is_the_fallback_and_is_asked_for_more_than_the_matrix(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    facts = live.nvidia_smi_output()
    assert [(g.pci, g.uuid, g.model) for g in facts.gpus] == [
        ("0000:01:00.0", "GPU-a", "NVIDIA RTX A6000"),
        ("0000:02:00.0", "GPU-b", "NVIDIA RTX A6000"),
    ]
    assert facts.peers["GPU0", "GPU1"] == "OK"
    machine = build.topology(facts)
    assert {link.bytes_per_s for link in machine.links if link.link_class.value == "nvlink"} == {56.25e9}
