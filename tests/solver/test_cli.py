"""``synth bound`` and ``synth solve``: answers, files, interruption, bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from synth import plan as plans
from synth.cli.main import main
from synth.topology import catalog
from synth.verifier import verify


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_bound_answers_with_its_proof(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "bound", "asym8", "--collective", "alltoall")
    assert found["bytes"] == 10**9
    assert found["algbw_bytes_per_s"] == pytest.approx(64e9, rel=1e-6)
    assert found["certificate"]["kind"] == "lengths"
    assert len(found["certificate"]["lengths"]) == len(catalog.build("asym8").links)


@pytest.mark.parametrize("machine", ["asym8", "hgx-h100x40"])
def test_a_bound_is_checked_by_itself(machine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = answer(capsys, "bound", machine, "--collective", "allgather")
    file = tmp_path / "bound.json"
    file.write_text(json.dumps(found))
    checked = answer(capsys, "check", str(file), "--topology", machine)
    assert (checked["valid"], checked["bound_checked"]) == (True, True)
    assert ("symmetry" in found) == (machine == "hgx-h100x40")
    found["certificate"]["bound_ns"] *= 1.01
    file.write_text(json.dumps(found))
    assert main(["check", str(file), "--topology", machine]) == 1
    assert "proves" in capsys.readouterr().out
    assert main(["check", str(file)]) == 2
    assert "--topology" in capsys.readouterr().err


def test_solve_writes_a_valid_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    found = answer(capsys, "solve", "ndv2x1", "--collective", "allreduce", "--bytes", "64MB", "-o", str(file))
    plan = plans.load(file)
    assert plan.digest == found["digest"]
    assert found["plan_file"] == str(file)
    assert found["gap"] == pytest.approx(found["predicted_seconds"] / found["bound_seconds"] - 1)
    assert not verify(plan, catalog.build("ndv2x1"))
    assert {"strategy", "termination", "solve_seconds"} <= set(found)


def test_a_demand_file_and_ranks_are_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "demand.json"
    file.write_text(json.dumps({"bytes": [[0, 10**6, 0], [0, 0, 5], [7, 0, 0]]}))
    plan_file = tmp_path / "plan.json"
    words = ["solve", "hgx-h100x2", "--collective", "alltoall", "--demand", str(file), "--ranks", "0,3,9"]
    found = answer(capsys, *words, "-o", str(plan_file))
    assert found["bytes"] == 10**6
    plan = plans.load(plan_file)
    assert plan.ranks == ("n0/gpu0", "n0/gpu3", "n1/gpu1")
    assert len(plan.chunks) >= 6  # pairs of no bytes are covered too


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["solve", "nowhere", "--collective", "alltoall"], "nowhere"),
        (["solve", "asym8", "--collective", "gossip"], "gossip"),
        (["solve", "asym8", "--collective", "alltoall", "--ranks", "0,99"], "99"),
        (["solve", "asym8", "--collective", "alltoall", "--time-limit", "-1"], "--time-limit"),
        (["solve", "asym8", "--collective", "alltoall", "--launch-ns", "-1"], "--launch-ns"),
        (["solve", "mesh5x5", "--collective", "alltoall", "--ranks", "0,24"], "cannot reach"),
        (["bound", "asym8", "--collective", "broadcast", "--root", "8"], "root"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_ctrl_c_keeps_the_best_found_so_far(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    words = ["solve", "mesh10x10", "--collective", "alltoall", "--json", "-o", str(file)]
    process = subprocess.Popen(
        [sys.executable, "-m", "synth", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["termination"] in ("cancelled", "finished", "optimal")
    assert not verify(plans.load(file), catalog.build("mesh10x10"))


def test_a_range_of_sizes_gets_a_book(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["solve", "asym8", "--collective", "allgather", "--range", "1KB:1GB", "--launch-ns", "9000"]
    found = answer(capsys, *words, "-o", str(tmp_path / "book.json"))
    assert found["complete"]
    assert found["plans"][0]["min_bytes"] == 1000
    assert found["plans"][-1]["max_bytes"] == 10**9
    for page in found["plans"]:
        assert plans.load(page["plan_file"]).digest == page["digest"]
