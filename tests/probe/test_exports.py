import pytest

from probe import build
from probe.exports import nccl_xml as writer
from probe.sources import nccl_graph, nccl_xml, nvidia_smi
from synth.errors import CaptureError
from tests.probe.captures import DATA, capture, needs_captures, text

pytestmark = needs_captures

READABLE = [
    "201", "202", "203", "204", "205", "207", "208", "209", "210", "211", "212", "213", "214", "220", "221", "222",
    "223", "224", "225", "226", "227", "230", "231", "232", "233", "234", "235", "236", "237", "238", "239", "240",
]  # fmt: skip


@pytest.mark.parametrize("number", READABLE)
def test_a_written_topology_xml_is_read_back_as_the_same_machine(number):
    facts = nccl_xml.read(capture(number).read_bytes(), subject=number)
    again = nccl_xml.read(writer.write(facts), subject="written")
    assert build.topology(again).fingerprint == build.topology(facts).fingerprint
    assert [(gpu.pci, gpu.sm, gpu.numa) for gpu in again.gpus] == [(gpu.pci, gpu.sm, gpu.numa) for gpu in facts.gpus]
    assert [(nic.device, nic.pci) for nic in again.nics] == [(nic.device or nic.name, nic.pci) for nic in facts.nics]
    assert set(again.bundles or ()) == set(facts.bundles or ())


def test_the_corrected_file_has_no_self_links():
    facts = nccl_xml.read(capture("204").read_bytes(), subject="204")
    assert "self-link" not in {f.code for f in nccl_xml.read(writer.write(facts)).findings}


def test_without_bus_ids_no_xml_can_be_written():
    with pytest.raises(CaptureError, match="bus id of GPU0"):
        writer.write(nvidia_smi.read(text("025")))


def test_graph_files():
    graphs = nccl_graph.read(capture("301").read_bytes())
    assert [(g.pattern, len(g.channels)) for g in graphs] == [(4, 8)]
    assert all([hop.kind for hop in channel] == ["net", "gpu", "net"] for channel in graphs[0].channels)
    first = nccl_graph.read(capture("303").read_bytes())[0]
    assert (first.id, first.pattern, [len(c) for c in first.channels]) == (0, 4, [4])
    ring, tree = nccl_graph.read(capture("304").read_bytes())[:2]
    assert [len(c) for c in ring.channels] == [4, 4]
    assert [len(c) for c in tree.channels] == [4, 4, 4, 4]
    assert sum(len(c) for g in nccl_graph.read(capture("305").read_bytes()) for c in g.channels) == 20
    dumped = nccl_graph.read((DATA / "h200x2" / "nccl-graph.xml").read_bytes())
    assert [len(g.channels) for g in dumped] == [12, 12, 0, 0, 0]


@pytest.mark.parametrize("number", ["301", "303", "304", "305"])
def test_written_graphs_are_read_back_equal(number):
    graphs = nccl_graph.read(capture(number).read_bytes())
    assert nccl_graph.read(nccl_graph.write(graphs)) == graphs


def test_an_ill_formed_graph_file_gets_line_and_column():
    with pytest.raises(CaptureError, match="line 15, column"):
        nccl_graph.read(capture("302").read_bytes(), subject="302")
