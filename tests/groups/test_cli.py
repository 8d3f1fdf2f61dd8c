import json

import numpy as np
import pytest

from synth import topology as topologies
from synth.cli.main import main
from synth.formats import nccl_settings, rank_files
from synth.topology import catalog
from tests.groups.machines import isolated_rails, switched


def run_json(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def rails_file(tmp_path):
    path = tmp_path / "rails.json"
    topologies.save(isolated_rails(), path)
    return str(path)


def test_answer_has_what_scripts_read(capsys):
    answer = run_json(capsys, "groups", "hgx-h100x4", "--ep-size", "8", "--costs")
    assert [len(group) for group in answer["groups"]] == [8] * 4
    assert answer["colors"] == [node for node in range(4) for _ in range(8)]
    assert answer["rank_order"] == [gpu for group in answer["groups"] for gpu in group]
    assert answer["bound_seconds"] <= answer["predicted_seconds"] * (1 + 1e-9)
    assert answer["predicted_seconds"] <= min(answer["baseline_seconds"].values()) * (1 + 1e-9)
    assert set(answer["baseline_seconds"]) == {"contiguous", "strided"}
    assert answer["nvlink_runs"] == [8] * 4
    assert answer["megatron"]["expert_model_parallel"][1] == list(range(8, 16))
    assert answer["megatron"]["expert_data_parallel"][0] == [0, 8, 16, 24]
    costs = np.array(answer["cost_us"])
    assert costs.shape == (32, 32)
    block = 64 * 2**20 // 8
    assert costs[0, 1] == pytest.approx(0.7 + block / 450e9 * 1e6, abs=1e-3)
    assert costs[0, 8] == pytest.approx(3.2 + block / 50e9 * 1e6, abs=1e-3)
    assert (np.diag(costs) == 0).all()


def test_islands_are_consecutive_in_the_rank_order(capsys):
    answer = run_json(capsys, "groups", "asym8", "--ep-size", "8", "--ranks", "0,4,1,5,2,6,3,7")
    assert answer["nvlink_runs"] == [4, 4]


def test_left_out_gpus_have_no_color(capsys):
    answer = run_json(capsys, "groups", "ndv2x1", "--ep-size", "3")
    assert answer["colors"].count(-1) == 2
    assert len(answer["left_out"]) == 2
    assert answer["baseline_seconds"]["contiguous"] is None
    assert "stay out" in answer["warnings"][0]


def test_a_subset_is_grouped_and_the_rest_left_alone(capsys):
    answer = run_json(capsys, "groups", "asym8", "--ep-size", "2", "--ranks", "0,1,4,5")
    assert {frozenset(group) for group in answer["groups"]} == {
        frozenset({"n0/gpu0", "n0/gpu1"}),
        frozenset({"n0/gpu4", "n0/gpu5"}),
    }
    assert answer["colors"] == [0, 0, -1, -1, 1, 1, -1, -1]


def test_rails_get_their_setting_with_its_reason(capsys, tmp_path, rails_file):
    path = tmp_path / "nccl.env"
    answer = run_json(capsys, "groups", rails_file, "--ep-size", "4", "--env", "-o", str(path))
    assert {item["name"]: item["value"] for item in answer["settings"]}["NCCL_CROSS_NIC"] == "0"
    text = path.read_text()
    assert "export NCCL_CROSS_NIC=0" in text
    assert "2 rails without a path between" in text


def test_isolated_rails_refuse_a_group_across(capsys, rails_file):
    assert main(["groups", rails_file, "--ep-size", "8"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "n0/gpu0 has no path to n0/gpu2" in captured.err


def test_rank_files(capsys, tmp_path):
    expected = {
        "slurm": "n0\n" * 8 + "n1\n" * 8,
        "mpi": "".join(f"rank {r}=n{r // 8} slot={r % 8}\n" for r in range(16)),
        "torchrun": "n0 8 0,1,2,3,4,5,6,7\nn1 8 0,1,2,3,4,5,6,7\n",
    }
    for kind, text in expected.items():
        path = tmp_path / kind
        run_json(capsys, "groups", "hgx-h100x2", "--ep-size", "8", "--rank-file", kind, "-o", str(path))
        assert path.read_text() == text


def test_torchrun_refuses_an_order_it_cannot_follow():
    topology = catalog.build("hgx-h100x2")
    with pytest.raises(Exception, match="not consecutive"):
        rank_files.torchrun_nodes(topology, ["n0/gpu0", "n1/gpu0", "n0/gpu1"])


def test_gpus_without_a_nic_are_named():
    topology = switched((2, 2), dead_nics=("n0/nic1",))
    found = {s.name: s for s in nccl_settings.settings(topology, [topology.gpus])}
    assert found["NCCL_PXN_DISABLE"].value == "0"
    assert "n0/gpu1" in found["NCCL_PXN_DISABLE"].reason
    assert found["NCCL_CROSS_NIC"].value == "2"


def test_text_says_it(capsys):
    assert main(["groups", "asym8", "--ep-size", "4"]) == 0
    text = capsys.readouterr().out
    assert "2 groups of 4 on asym8" in text
    assert "optimal" in text
    assert "strided" in text


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["asym8", "--ep-size", "9"], "from 2 to 8"),
        (["asym8", "--ep-size", "4", "--ranks", "0,0,1,2"], "stands twice"),
        (["asym8", "--ep-size", "4", "--bytes", "lots"], "is not a size"),
        (["asym8", "--ep-size", "4", "-o", "x"], "--rank-file and --env"),
        (["asym8"], "--ep-size"),
        (["nothing", "--ep-size", "4"], "neither a file nor a catalog machine"),
    ],
)
def test_bad_requests_end_with_one_sentence(capsys, words, wrong):
    assert main(["groups", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert wrong in captured.err
    assert len(captured.err.splitlines()) == 1
