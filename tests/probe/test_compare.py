from dataclasses import replace

import pytest

from probe import compare
from probe.sources import nccl_dump, nccl_xml, nvidia_smi, nvml
from synth.errors import CaptureError
from tests.probe import fakes
from tests.probe.captures import DATA, needs_captures


@needs_captures
def test_the_three_views_of_one_machine_agree_and_a_difference_is_marked():
    library = fakes.FakeNvml([fakes.FakeGpu("00000000:00:06.0", "GPU-a"), fakes.FakeGpu("00000000:00:07.0", "GPU-b")])
    reports = {
        "NVML": nvml.read(library),
        "nvidia-smi": nvidia_smi.read((DATA / "h200x2" / "topo-m.txt").read_text()),
        "NCCL": nccl_xml.read((DATA / "h200x2" / "nccl-topo.xml").read_bytes()),
    }
    rows = compare.compare(reports)
    assert [row.fact for row in rows if not row.agrees] == []
    route = next(row for row in rows if row.fact == "route GPU0-GPU1")
    assert route.values == dict.fromkeys(reports, "nvlink 450 GB/s")
    assert "all sources agree" in compare.table(rows, [])
    bundles = tuple(replace(bundle, lanes=17) for bundle in reports["NCCL"].bundles or ())
    whole = (DATA / "h200x2" / "topo-m.txt").read_text() + (DATA / "h200x2" / "links.txt").read_text()
    rows = compare.compare(reports | {"nvidia-smi": nvidia_smi.read(whole)})
    told = next(row for row in rows if row.fact == "GPU0 NVLinks")
    assert told.values == dict.fromkeys(reports, "18")
    rows = compare.compare(reports | {"NCCL": replace(reports["NCCL"], bundles=bundles)})
    assert {row.fact for row in rows if not row.agrees} == {"GPU0 NVLinks", "GPU1 NVLinks", "route GPU0-GPU1"}
    assert "\n! GPU0 NVLinks" in compare.table(rows, ["nvml: x"])


def test_a_machine_without_nccl_says_so():
    with pytest.raises(CaptureError, match="nccl: wrote no topology"):
        nccl_dump.dump(1)


def test_one_gpu_is_compared_too():
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t0\t\tN/A\nGPU 0: NVIDIA H200\n"
    text += "".join(f"\t Link {number}: 26.562 GB/s\n" for number in range(18))
    driver = nvml.read(fakes.FakeNvml([fakes.FakeGpu("00000000:00:06.0", "GPU-a")]))
    rows = compare.compare({"NVML": driver, "nvidia-smi": nvidia_smi.read(text)})
    assert all(row.agrees for row in rows)
    assert {row.fact: row.values for row in rows}["GPU0 NVLinks"] == {"NVML": "18", "nvidia-smi": "18"}
