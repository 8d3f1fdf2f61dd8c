"""Every row of the captures' INDEX.tsv: what was read off the capture by hand is what the probe reads."""

from __future__ import annotations

import csv
import re
from collections import Counter
from itertools import combinations

import pytest

from probe import build
from probe.facts import Distance, Facts
from probe.sources import sniff
from synth.errors import CaptureError
from synth.topology import Confidence, LinkClass, Routes, Topology
from tests.probe.captures import TOPO, capture, needs_captures

pytestmark = needs_captures


def rows() -> list[dict[str, str]]:
    if not TOPO.is_dir():
        return []
    with open(TOPO / "INDEX.tsv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def read(name: str) -> Facts:
    return sniff.read((TOPO / name).read_bytes(), subject=name)


def classes(facts: Facts) -> Counter[str]:
    """Classes of the GPU pairs, each pair once."""
    names = [gpu.name for gpu in facts.gpus]
    seen = [facts.path(a, b) for a, b in combinations(names, 2)]
    return Counter(str(path) for path in seen if path is not None)


MATRICES = [row for row in rows() if row["kind"].startswith("topo ") and not row["ground_truth"].startswith("not ")]


@pytest.mark.parametrize("row", MATRICES, ids=[row["file"][:3] for row in MATRICES])
def test_matrix(row):
    truth = row["ground_truth"]
    facts = read(row["file"])
    machine = build.topology(facts)
    if match := re.match(r"G(\d+)(?: N(\d+))?\b", truth):
        assert len(facts.gpus) == int(match[1])
        assert match[2] is None or len(facts.nics) == int(match[2])
    seen = classes(facts)
    for lanes, count in re.findall(r"NV(\d+) x(\d+)", truth):
        assert seen[f"NV{lanes}"] == int(count)
    if "no NVLink" in truth:
        assert not [word for word in seen if word.startswith("NV")]
    if match := re.search(r"other pairs ((?:[A-Z]+ \d+(?:, )?)+)", truth):
        wanted = {word: int(count) for word, count in re.findall(r"([A-Z]+) (\d+)", match[1])}
        wanted["SYS"] = wanted.pop("SOC", 0) + wanted.get("SYS", 0)
        assert {word: n for word, n in seen.items() if not word.startswith("NV")} == {
            w: n for w, n in wanted.items() if n
        }
    for pairs, word in re.findall(r"((?:GPU\d+-\w+(?:, )?)+) (PIX|PXB)", truth):
        for gpu, nic in re.findall(r"(GPU\d+)-(\w+)", pairs):
            path = facts.path(gpu, nic)
            assert path is not None
            assert path.distance is Distance[word]
    if match := re.search(r"; NUMA ([0-9,]+)$", truth):
        nodes = [gpu.numa for gpu in facts.gpus if gpu.numa is not None]
        assert list(dict.fromkeys(nodes)) == [int(node) for node in match[1].split(",")]
    if "no NUMA column" in truth or "NUMA N/A" in truth:
        assert {gpu.numa for gpu in facts.gpus} == {None}
    Routes.among(machine).require_connected()


REFUSED = ["009", "042"]


@pytest.mark.parametrize("number", REFUSED)
def test_what_is_not_certain_at_all_is_refused_in_one_sentence(number):
    with pytest.raises(CaptureError) as caught:
        read(capture(number).name)
    assert capture(number).name in caught.value.message
    assert "\n" not in caught.value.message


def codes(number: str) -> set[str]:
    return {finding.code for finding in build.topology(read(capture(number).name)).findings}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("002", "all-sys"),
        ("004", "rows-missing"),
        ("013", "header-glued"),
        ("013", "cells-glued"),
        ("014", "memory-numa"),
        ("039", "text-elided"),
        ("040", "text-elided"),
        ("052", "distance-contradiction"),
        ("070", "cells-glued"),
        ("074", "cells-glued"),
        ("077", "distance-contradiction"),
        ("085", "columns-ambiguous"),
        ("093", "column-unknown"),
        ("099", "affinity-missing"),
        ("110", "nvlink-impossible"),
        ("134", "header-cut"),
        ("137", "header-glued"),
        ("138", "gpu-outside-fabric"),
        ("138", "header-missing"),
        ("139", "affinity-missing"),
        ("142", "header-missing"),
        ("144", "pairs-unread"),
        ("145", "header-glued"),
    ],
)
def test_what_was_lost_or_is_wrong_is_a_finding(number, code):
    assert code in codes(number)


CLEAN = ["025", "043", "049", "050", "065", "067", "135"]


@pytest.mark.parametrize("number", CLEAN)
def test_a_healthy_capture_gets_no_warning(number):
    machine = build.topology(read(capture(number).name))
    assert [f for f in machine.findings if f.severity.value == "error"] == []
    assert not {f.code for f in machine.findings} & {"rows-missing", "header-cut", "cells-glued", "pairs-unread"}


def test_ambiguous_columns_keep_the_certain_cells_only():
    facts = read(capture("085").name)
    assert [nic.name for nic in facts.nics] == ["NIC0", "NIC1"]
    assert str(facts.path("GPU0", "NIC0")) == "PXB"
    assert str(facts.path("GPU1", "NIC0")) == "NODE"


def test_glued_lane_counts_are_not_read_greedily():
    facts = read(capture("074").name)
    assert {path.lanes for path in facts.paths.values()} == {12}
    assert facts.gpus[0].cpus == "0-31"
    assert facts.gpus[0].numa == 0


def test_a_cpu_list_in_the_middle_of_a_row_is_no_lane_count():
    facts = sniff.read(b"\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV120-31\tNV12\nGPU1\tNV12\t X \tNV12\n", subject="x")
    assert {str(path) for path in facts.paths.values()} == {"NV12"}


def test_memory_numa_nodes_are_told_from_those_of_cpus():
    gpus = read(capture("014").name).gpus
    assert [gpu.numa for gpu in gpus[:3]] == [0, 0, 1]
    assert [gpu.memory_numa for gpu in gpus[:3]] == [2, 10, 18]


def test_names_of_the_nic_legend():
    assert [nic.device for nic in read(capture("030").name).nics] == ["mlx5_3", "mlx5_8"]
    assert [nic.device for nic in read(capture("049").name).nics] == [f"mlx5_bond_{i}" for i in range(8)]
    assert [nic.device for nic in read(capture("043").name).nics] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_bus_ids_beside_the_matrix():
    assert read(capture("064").name).gpus[7].pci == "0000:d1:00.0"


def peers(number: str) -> dict[tuple[str, str], str]:
    return dict(read(capture(number).name).peers)


def test_p2p_matrices():
    assert Counter(peers("107").values()) == {"OK": 56}
    assert Counter(peers("108").values()) == {"CNS": 2}
    assert Counter(peers("109").values()) == {"OK": 56}
    assert Counter(peers("102").values()) == {"OK": 20}
    assert Counter(peers("029").values()) == {"OK": 2}


def test_two_matrices_side_by_side():
    facts = read(capture("113").name)
    assert classes(facts) == {"PHB": 2, "SYS": 4}
    assert facts.peers["GPU0", "GPU1"] == "OK"
    assert facts.peers["GPU0", "GPU2"] == "TNS"


def test_peer_lines_of_cuda_samples():
    seen = peers("119")
    assert {b for (a, b), status in seen.items() if a == "GPU11" and status == "NS"} == {f"GPU{i}" for i in range(4, 8)}
    assert {b for (a, b), status in seen.items() if a == "GPU11" and status == "OK"} == {
        f"GPU{i}" for i in (8, 9, 10, 12, 13, 14, 15)
    }
    assert {pair for pair, status in peers("120").items() if status == "OK"} == {
        ("GPU0", "GPU1"),
        ("GPU1", "GPU0"),
        ("GPU2", "GPU3"),
    }


def test_nvlink_status_lists():
    ports = read(capture("104").name).ports["GPU3"]
    assert (ports.up, ports.down) == ((0, 1, 2, 4), (3, 5))
    assert ports.raw_bytes_per_s == 25.781e9
    facts = read(capture("111").name)
    assert [(len(facts.ports[g.name].up), len(facts.ports[g.name].down)) for g in facts.gpus] == [(12, 0)] * 8
    ports = read(capture("114").name).ports["GPU0"]
    assert (len(ports.up), len(ports.down)) == (12, 5)
    facts = read(capture("105").name)
    assert len(facts.ports["GPU0"].up) == 18
    assert not facts.ports["GPU1"].complete
    facts = read(capture("117").name)
    assert set(facts.ports) == {"GPU0", "GPU7"}
    assert len(facts.ports["GPU7"].up) == 6
    facts = read(capture("060").name)
    assert [len(facts.ports[f"GPU{i}"].up) for i in range(3)] == [12, 12, 12]
    assert not facts.ports["GPU3"].complete


def test_nvlink_remote_ends_and_capabilities():
    facts = read(capture("112").name)
    assert [gpu.name for gpu in facts.gpus] == ["GPU6"]
    assert facts.ports["GPU6"].up == (0, 1, 2, 3, 4, 5, 6)
    assert read(capture("115").name).ports["GPU0"].up == (0, 1)


def test_nccl_log():
    facts = read(capture("121").name)
    assert len(facts.gpus) == 8
    assert classes(facts) == {"PHB": 5, "SYS": 8}
    assert facts.gpus[0].pci == "0000:4e:00.0"


XML = {  # number -> GPUs, NICs (None where virtual interfaces were left out), NVLink or xGMI lanes of each GPU
    "201": (8, 1, 0), "202": (8, 8, 0), "203": (8, 8, 0), "205": (2, 1, 12), "207": (8, 4, 0), "208": (8, 4, 0),
    "209": (8, 16, 18), "210": (8, 16, 18), "211": (8, 8, 0), "212": (8, 8, 0), "213": (8, 8, 0), "214": (8, 8, 0),
    "220": (2, 2, 0), "221": (4, None, 0), "222": (8, 8, 8), "223": (16, 8, 0), "224": (2, None, 0),
    "225": (4, 1, 0), "226": (8, 1, 0), "227": (4, 1, 12), "204": (4, 1, 0), "230": (8, 4, 7), "231": (16, 8, 7),
    "232": (8, 8, 7), "233": (8, 4, 3), "234": (8, 4, 3), "235": (3, 1, 0), "236": (8, 6, 6), "237": (8, 1, 3),
    "238": (8, 8, 7), "239": (16, 1, 7), "240": (8, 8, 7),
}  # fmt: skip


@pytest.mark.parametrize("number", XML)
def test_topology_xml(number):
    gpus, nics, lanes = XML[number]
    facts = read(capture(number).name)
    assert len(facts.gpus) == gpus
    assert nics is None or len(facts.nics) == nics
    total = Counter[str]()
    for bundle in facts.bundles or ():
        total[bundle.gpu] += bundle.lanes
    assert max(total.values(), default=0) == lanes
    Routes.among(build.topology(facts)).require_connected()


@pytest.mark.parametrize(
    ("number", "entries"), [("230", 24), ("231", 56), ("234", 24), ("236", 48), ("238", 56), ("239", 112)]
)
def test_xgmi_entries(number, entries):
    facts = read(capture(number).name)
    assert len(facts.bundles or ()) == entries
    pairs = {(bundle.gpu, bundle.peer): bundle.lanes for bundle in facts.bundles or ()}
    assert all(pairs[b, a] == lanes for (a, b), lanes in pairs.items())


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("206", "9 PCI devices without a class"),
        ("215", "4 PCI devices without a class"),
        ("216", "line 16"),
        ("217", "line 1"),
        ("218", "directly under <system>"),
        ("219", "line 2, column 1"),
        ("254", "999"),
        ("260", "version"),
        ("263", "line 6"),
        ("264", "line 3"),
        ("265", "line 1"),
        ("266", "line 2"),
        ("267", "line 2"),
        ("268", "line 1"),
        ("269", "line 3"),
        ("270", "line 2"),
        ("271", "line 6"),
        ("272", "line 5"),
        ("275", "999"),
        ("301", "graph XML"),
        ("303", "graph XML"),
        ("402", "network"),
        ("411", "Slurm"),
    ],
)
def test_files_that_are_no_machine_say_why_and_where(number, words):
    with pytest.raises(CaptureError) as caught:
        read(capture(number).name)
    assert words in caught.value.message


def test_a_gpu_joined_to_itself_is_not_counted():
    facts = read(capture("204").name)
    noticed = [f for f in facts.findings if f.code == "self-link"]
    assert [f.subject for f in noticed] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert all("line " in f.message for f in noticed)
    assert facts.bundles == ()


def nvlinks(machine: Topology) -> set[float]:
    return {link.bytes_per_s for link in machine.links if link.link_class is LinkClass.NVLINK}


def test_lstopo():
    facts = read(capture("421").name)
    assert len(facts.gpus) == 16
    assert nvlinks(build.topology(facts)) == {150e9}
    facts = read(capture("422").name)
    assert len(facts.gpus) == 4
    machine = build.topology(facts)
    assert nvlinks(machine) == {40e9}
    facts = read(capture("424").name)
    assert [gpu.memory_numa for gpu in facts.gpus] == [255, 254, 253, 252, 251, 250]


def test_every_file_is_read_or_refused_with_the_probes_own_error():
    refused: list[tuple[str, str]] = []
    for path in sorted(TOPO.iterdir()):
        try:
            facts = read(path.name)
            machine = build.topology(facts)
        except CaptureError as error:
            refused.append((path.name, error.message))
            continue
        assert machine.gpus
        assert all(link.confidence in Confidence for link in machine.links)
    assert all(name in message and "\n" not in message for name, message in refused)
