"""Real machines, from their captures to their groups."""

import json

import pytest

from synth.cli.main import main
from tests.conftest import SHARED

TOPO = SHARED / "data" / "topo"
pytestmark = pytest.mark.skipif(not TOPO.is_dir(), reason="the shared captures are not beside the repository")


def capture(start: str) -> str:
    return str(next(TOPO.glob(f"{start}-*.txt")))


def groups(capsys, *words: str) -> dict:
    capsys.readouterr()
    assert main(["groups", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_gpu_that_lost_its_nvlinks_stays_out(capsys, tmp_path):
    path = str(tmp_path / "n0.json")
    assert main(["probe", "--smi", capture("138"), "--node", "n0", "-o", path]) == 0
    answer = groups(capsys, path, "--ep-size", "7")
    assert answer["left_out"] == ["n0/gpu2"]
    assert answer["predicted_seconds"] < 0.2 * answer["baseline_seconds"]["contiguous"]


def test_nvlink_pairs_on_pcie_are_groups_of_two(capsys, tmp_path):
    path = str(tmp_path / "n0.json")
    assert main(["probe", "--smi", capture("055"), "--node", "n0", "-o", path]) == 0
    assert groups(capsys, path, "--ep-size", "2")["groups"] == [["n0/gpu0", "n0/gpu1"], ["n0/gpu2", "n0/gpu3"]]


def test_isolated_rails_group_by_rail(capsys, tmp_path):
    nodes = [str(tmp_path / f"{name}.json") for name in ("a", "b")]
    for name, path in zip("ab", nodes, strict=True):
        assert main(["probe", "--smi", capture("058"), "--node", name, "-o", path]) == 0
    both = str(tmp_path / "both.json")
    assert main(["probe", "--network", "isolated-rails", *nodes, "-o", both]) == 0
    answer = groups(capsys, both, "--ep-size", "4")
    assert answer["groups"] == [
        ["a/gpu0", "a/gpu1", "b/gpu0", "b/gpu1"],
        ["a/gpu2", "a/gpu3", "b/gpu2", "b/gpu3"],
    ]
    assert answer["predicted_seconds"] < 0.3 * min(answer["baseline_seconds"].values())
    assert {item["name"]: item["value"] for item in answer["settings"]}["NCCL_CROSS_NIC"] == "0"
