from dataclasses import replace

import pytest

from probe import build, facts_document, live
from probe.facts import Bridge, Facts, Gpu
from probe.merge import merge
from probe.sources import nccl_xml, nvidia_smi, nvml, sniff, sysfs
from synth import documents
from synth.errors import CaptureError
from tests.probe import fakes
from tests.probe.captures import DATA, capture, needs_captures, text


def h200() -> tuple[Facts, Facts]:
    return (
        nvidia_smi.read((DATA / "h200x2" / "topo-m.txt").read_text(), subject="topo-m"),
        nccl_xml.read((DATA / "h200x2" / "nccl-topo.xml").read_bytes(), subject="xml"),
    )


@needs_captures
def test_two_views_of_one_machine_add_up_and_agree():
    matrix, xml = h200()
    both = merge([matrix, xml])
    assert [gpu.pci for gpu in both.gpus] == ["0000:00:06.0", "0000:00:07.0"]
    assert [gpu.numa for gpu in both.gpus] == [0, 0]
    assert "sources-disagree" not in {f.code for f in both.findings}
    assert both.origin["nvlink"] == "NCCL topology XML"
    assert both.origin["tree"] == "NCCL topology XML"
    assert both.origin["GPU0.numa"] == "nvidia-smi topo -m"


@needs_captures
def test_the_order_of_sources_does_not_matter():
    matrix, xml = h200()
    assert build.topology(merge([matrix, xml])).fingerprint == build.topology(merge([xml, matrix])).fingerprint


@needs_captures
def test_sources_that_disagree_are_a_finding_and_the_more_direct_wins():
    matrix, xml = h200()
    fewer = replace(xml, bundles=tuple(replace(bundle, lanes=16) for bundle in xml.bundles or ()))
    both = merge([matrix, fewer])
    assert {f.subject for f in both.findings if f.code == "sources-disagree"} == {"GPU0", "GPU1"}
    assert {bundle.lanes for bundle in both.bundles or ()} == {16}


@needs_captures
def test_one_report_per_container_adds_up_by_uuid():
    whole = nccl_xml.read(capture("222").read_bytes(), subject="222")
    parts = []
    for gpu in whole.gpus:
        alone = replace(gpu, name="GPU0", uuid=f"GPU-{gpu.name}")
        parts.append(
            replace(
                whole,
                gpus=(alone,),
                nics=(),
                parents={"GPU0": whole.parents[gpu.name]} | {b.name: whole.parents[b.name] for b in whole.bridges},
                bundles=tuple(replace(b, gpu="GPU0") for b in whole.bundles or () if b.gpu == gpu.name),
            )
        )
    both = merge(parts)
    assert [gpu.pci for gpu in both.gpus] == [gpu.pci for gpu in whole.gpus]
    assert sum(bundle.lanes for bundle in both.bundles or ()) == 64


def test_reports_of_two_hosts_are_refused():
    one = Facts(source="NVML", host="boot:a", gpus=(Gpu(name="GPU0", pci="0000:01:00.0"),))
    with pytest.raises(CaptureError, match="2 machines"):
        merge([one, replace(one, host="boot:b")])


@needs_captures
def test_a_text_without_bus_ids_must_show_as_many_gpus():
    with pytest.raises(CaptureError, match="8 GPUs without bus ids"):
        merge([nvidia_smi.read(text("025")), h200()[1]])


TREE = {
    "pci0000:00/0000:00:01.0": fakes.BRIDGE,
    "pci0000:00/0000:00:01.0/0000:01:00.0": fakes.BRIDGE,
    "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0": fakes.GPU,
    "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0": fakes.GPU,
    "pci0000:00/0000:00:01.0/0000:01:00.0/0000:04:00.0": fakes.NIC,
}


def test_containers_of_one_machine_add_up_to_the_whole_machine(tmp_path):
    """Each sees all of sysfs, one GPU through the driver, and writes its facts down."""
    nic = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:04:00.0"
    root = fakes.sysfs(tmp_path, TREE, infiniband={"mlx5_0": (nic, "400 Gb/sec (4X NDR)", "4: ACTIVE")})
    gpus = [fakes.FakeGpu("00000000:02:00.0", "GPU-a"), fakes.FakeGpu("00000000:03:00.0", "GPU-b")]
    files = []
    for gpu in gpus:
        driver = nvml.read(fakes.FakeNvml([gpu]))
        facts = merge([driver, live.only_visible(sysfs.read(root), driver)])
        assert [g.name for g in facts.gpus] == ["GPU0"]
        files.append(facts_document.dumps(facts).encode())
    whole = merge([nvml.read(fakes.FakeNvml(gpus)), sysfs.read(root)])
    added = merge([sniff.read(file, subject="facts") for file in files])
    assert [gpu.uuid for gpu in added.gpus] == ["GPU-a", "GPU-b"]
    assert build.topology(added).fingerprint == build.topology(whole).fingerprint
    assert "device-missing" not in {f.code for f in added.findings}


@needs_captures
@pytest.mark.parametrize("number", ["013", "025", "060", "104", "113", "204", "222", "230", "421", "424"])
def test_facts_survive_their_document(number):
    facts = sniff.read(capture(number).read_bytes(), subject=number)
    again = sniff.read(facts_document.dumps(facts).encode(), subject="facts")
    assert again == facts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "synth-facts/2"}, "reads synth-facts/1"),
        ({"parents": {"GPU0": "nowhere"}}, "nowhere"),
        ({"parents": {"GPU0": "pcie0", "pcie0": "pcie0"}}, "hangs on no socket"),
        ({"gpus": [{"name": "GPU0"}]}, "no synth-facts/1"),
        ({"gpus": 3}, "must be an array"),
        ({"paths": [["GPU0", "GPU1", "x", None]]}, "no synth-facts/1"),
        ({"paths": [["GPU0", "GPU9", 1, None]]}, "GPU9"),
        ({"ports": {"GPU0": {"up": [0], "down": [], "raw_bytes_per_s": -1, "complete": True}}}, "raw_bytes_per_s -1"),
        ({"sockets": [{"name": 3}]}, "Socket has name 3"),
        ({"bundles": [{"gpu": "GPU0", "peer": "x", "lanes": "many"}]}, "lanes"),
        ({"bundles": [{"gpu": "GPU7", "peer": "x", "lanes": 1}]}, "does not describe"),
    ],
)
def test_facts_that_make_no_sense_are_refused(change, words):
    facts = Facts(source="x", gpus=(Gpu(name="GPU0"),), bridges=(Bridge(name="pcie0"),))
    document = facts_document.to_document(facts) | change
    with pytest.raises(CaptureError) as caught:
        sniff.read(documents.canonical(document).encode(), subject="facts")
    assert words in caught.value.message
