"""``synth probe`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synth import topology
from synth.cli.main import main
from tests.probe.captures import DATA, capture, needs_captures

pytestmark = needs_captures


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["probe", *map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_json_answer_is_what_is_written(capsys, tmp_path: Path):
    file = tmp_path / "machine.json"
    status, out, _ = run(capsys, "--smi", capture("025"), "--json", "-o", file)
    assert status == 0
    assert json.loads(out) == json.loads(file.read_text())
    assert topology.load(file).gpus == tuple(f"n0/gpu{i}" for i in range(8))


def test_what_was_read_stands_beside_the_topology(capsys):
    _, out, _ = run(capsys, DATA / "h200x2" / "nccl-topo.xml", DATA / "h200x2" / "topo-m.txt", "--json")
    observed = json.loads(out)["observed"]
    assert observed["paths"]["n0/gpu0:n0/gpu1"] == "NV18"
    assert observed["provenance"]["nvlink"] == "NCCL topology XML"
    assert observed["provenance"]["n0/gpu0.numa"] == "nvidia-smi topo -m"


def test_the_picture_names_gpus_nics_and_findings(capsys):
    status, out, _ = run(capsys, "--smi", capture("097"))
    assert status == 0
    assert "GPU to NIC" in out
    assert "nvlink 100.00 GB/s each way" in out
    assert "warning: gpu-without-nic [n0/gpu0]" in out


def test_naming_the_gpu_settles_the_generation(capsys):
    _, out, _ = run(capsys, "--smi", capture("075"), "--gpu", "NVIDIA B200", "--json")
    document = json.loads(out)
    assert {link["bytes_per_s"] for link in document["links"] if link["class"] == "nvlink"} == {900e9}
    assert "generation-unknown" not in {f["code"] for f in document["findings"]}


def test_nodes_are_joined_over_a_network(capsys, tmp_path: Path):
    for name in ("a", "b"):
        run(capsys, "--nccl-xml", capture("222"), "-o", tmp_path / f"{name}.json")
    file = tmp_path / "cluster.json"
    status, _, _ = run(capsys, "--network", "rails", tmp_path / "a.json", tmp_path / "b.json", "-o", file)
    assert status == 0
    assert topology.load(file).nodes == ("a", "b")


def test_exports(capsys, tmp_path: Path):
    file = tmp_path / "corrected.xml"
    status, _, _ = run(capsys, "--nccl-xml", capture("204"), "--to", "nccl-xml", "-o", file)
    assert status == 0
    assert "<nvlink" not in file.read_text()
    status, out, _ = run(capsys, "--smi", capture("049"), "--to", "nccl-env")
    assert status == 0
    assert "NCCL_IB_HCA==mlx5_bond_0,mlx5_bond_1" in out
    assert '[ "${LOCAL_RANK:-0}" = 7 ] && export UCX_NET_DEVICES=mlx5_bond_7:1' in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--smi", "missing.txt"], "cannot be read"),
        (["--smi", str(DATA / "users.tsv")], "no matrix"),
        (["--measure", "x.txt"], "needs the machine itself"),
        (["--network", "flat"], "needs the nodes"),
        (["--network", "flat", str(DATA / "links.md")], "is not JSON"),
        (["--node", "a/b", "--smi", "x"], "cannot name a node"),
        (["--smi", str(DATA / "topo" / "025-dgx1v-8xv100-mlx5_0-oneflow.txt"), "--to", "nccl-xml"], "bus id"),
        (["--smi", str(DATA / "topo" / "075-8gpu-nv18-10nic-ansi-tabs-full.txt"), "--watch"], "SYNTH_SERVER"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(capsys, monkeypatch, words, told):
    monkeypatch.delenv("SYNTH_SERVER", raising=False)
    status, out, err = run(capsys, *words)
    assert status == 2
    assert out == ""
    assert told in err
    assert len(err.strip().splitlines()) == 1
