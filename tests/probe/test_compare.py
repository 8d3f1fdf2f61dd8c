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
    rows = compare.compare(reports | {"NCCL": replace(reports["NCCL"], bundles=bundles)})
    assert {row.fact for row in rows if not row.agrees} == {"GPU0 NVLinks", "GPU1 NVLinks", "route GPU0-GPU1"}
    assert "\n! GPU0 NVLinks" in compare.table(rows, ["nvml: x"])


def test_a_machine_without_nccl_says_so():
    with pytest.raises(CaptureError, match="nccl: wrote no topology"):
        nccl_dump.dump(1)
