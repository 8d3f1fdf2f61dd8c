import json

import numpy as np
import pytest

from synth import plan as plans
from synth.cli.main import main
from synth.testing.expert_loads import expert_loads
from synth.topology import catalog
from synth.verifier import verify


@pytest.fixture
def loads_file(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text(json.dumps({"loads": expert_loads("zipf1.2", 4, 64, seed=0).tolist()}))
    return str(path)


def run_json(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out)


def test_answer_has_what_scripts_read(capsys, loads_file):
    answer = run_json(capsys, "place", "hgx-h100x2", "--loads", loads_file, "--replicas", "80", "--expert-groups", "8")
    phy2log = np.array(answer["phy2log"])
    assert phy2log.shape == (4, 80)
    assert np.array(answer["logcnt"]).sum(axis=1).tolist() == [80] * 4
    for layer, experts in enumerate(answer["log2phy"]):
        for expert, slots in enumerate(experts):
            held = [slot for slot in slots if slot >= 0]
            assert len(held) == answer["logcnt"][layer][expert]
            assert (phy2log[layer, held] == expert).all()
    for key in ("max_over_mean", "cross_node_share", "moves", "bound_max_over_mean"):
        assert len(answer[key]) == 4
    for found, bound, eplb in zip(
        answer["max_over_mean"], answer["bound_max_over_mean"], answer["eplb_max_over_mean"], strict=True
    ):
        assert bound - 1e-9 <= found <= eplb + 1e-9
    assert answer["moves"] == [0, 0, 0, 0]
    assert answer["nodes"] == 2
    assert answer["gain"]["low"] <= answer["gain"]["expected"] <= answer["gain"]["high"]
    tokens = np.array(answer["traffic"]["after"]["tokens"])
    assert tokens.shape == (16, 16)
    assert tokens.sum() == pytest.approx(expert_loads("zipf1.2", 4, 64, seed=0).sum(), rel=1e-6)
    assert answer["traffic"]["after"]["rank_max_over_mean"] < answer["traffic"]["before"]["rank_max_over_mean"]


def test_moves_are_written_as_plans_that_hold(capsys, tmp_path, loads_file):
    first, later, moves = (str(tmp_path / name) for name in ("first.json", "later.json", "moves.json"))
    run_json(capsys, "place", "hgx-h100x2", "--loads", loads_file, "--replicas", "80", "-o", first)
    with open(later, "w") as file:
        json.dump({"loads": expert_loads("zipf1.2", 4, 64, seed=9).tolist()}, file)
    answer = run_json(
        capsys,
        *("place", "hgx-h100x2", "--loads", later, "--replicas", "80", "--previous", first),
        *("--migration", moves, "--expert-bytes", "44MB"),
    )
    assert sum(answer["moves"]) == answer["migration"]["experts"] > 0
    assert answer["migration"]["seconds"] > 0
    with open(moves) as file:
        steps = json.load(file)["steps"]
    assert sum(len(step["pairs"]) for step in steps) == answer["migration"]["experts"]
    topology = catalog.build("hgx-h100x2")
    for step in steps:
        assert verify(plans.from_document(step["plan"]), topology) == ()


@pytest.mark.parametrize("form", ["eplb", "sglang", "vllm", "vllm-ascend"])
def test_any_written_format_serves_as_previous(capsys, tmp_path, loads_file, form):
    path = str(tmp_path / "map.json")
    words = ("place", "hgx-h100x1", "--loads", loads_file, "--replicas", "72")
    run_json(capsys, *words, "--format", form, "-o", path)
    answer = run_json(capsys, *words, "--previous", path)
    assert all(answer["kept"])
    assert answer["moves"] == [0] * 4


def test_text_says_it(capsys, loads_file):
    assert main(["place", "hgx-h100x2", "--loads", loads_file, "--replicas", "80"]) == 0
    text = capsys.readouterr().out
    assert "4 layers, 64 experts in 80 slots on 16 ranks of 2 nodes" in text
    assert "EPLB" in text


def test_small_samples_are_called_small(capsys, tmp_path):
    path = tmp_path / "few.json"
    path.write_text(json.dumps({"loads": np.random.default_rng(0).poisson(5, (2, 64)).tolist()}))
    answer = run_json(capsys, "place", "hgx-h100x1", "--loads", str(path), "--replicas", "72")
    assert any("sample is small" in warning for warning in answer["warnings"])


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--replicas", "81"], "96 would"),
        (["--replicas", "48"], "cannot hold 64 experts"),
        (["--ep-size", "17"], "must be from 1 to 16"),
        (["--expert-groups", "3"], "3 equal groups"),
        (["--replicas", "80", "--memory", "1GB"], "needs --expert-bytes"),
        (["--replicas", "80", "--memory", "1GB", "--expert-bytes", "100MB"], "not even one copy"),
        (["--replicas", "80", "--memory", "800MB", "--expert-bytes", "44MB"], "--replicas 64 would fit"),
        (["--migration", "x.json"], "needs --previous"),
        (["--slack", "7"], "from 0 to 1"),
    ],
)
def test_bad_requests_end_with_one_sentence(capsys, loads_file, words, wrong):
    assert main(["place", "hgx-h100x2", "--loads", loads_file, *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert wrong in captured.err
    assert len(captured.err.splitlines()) == 1


def test_shares_instead_of_counts_have_no_sampling_range(capsys, tmp_path):
    path = tmp_path / "shares.json"
    path.write_text(json.dumps({"loads": np.random.default_rng(0).random((2, 64)).tolist()}))
    answer = run_json(capsys, "place", "hgx-h100x1", "--loads", str(path), "--replicas", "72")
    assert answer["gain"]["low"] == answer["gain"]["high"]
    assert any("not whole counts" in warning for warning in answer["warnings"])


def test_missing_loads_file_is_named(capsys, tmp_path):
    assert main(["place", "hgx-h100x1", "--loads", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
