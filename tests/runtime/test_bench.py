"""``synth bench``: sizes, skew, and a whole run over MPI."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from runtime.bench import sizes_between, zipf_matrix
from runtime.direct import direct_plan
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective
from synth.errors import InputError


def test_sizes_go_by_factor_or_step():
    assert sizes_between(1024, 20_000, 4, None) == (1024, 4096, 16_384)
    assert sizes_between(100, 300, 2, 100) == (100, 200, 300)
    for wrong in ((0, 5, 2, None), (10, 5, 2, None), (1, 5, 1, None), (1, 5, 2, 0)):
        with pytest.raises(InputError):
            sizes_between(*wrong)


def test_skewed_demand_keeps_each_rank_at_the_size():
    matrix = zipf_matrix(8, 1_000_000, 1.2, 3)
    assert (np.abs(matrix.sum(axis=1) - 1_000_000) < 8).all()
    assert matrix.max() > 5 * matrix.min()
    assert (zipf_matrix(8, 1000, 0.0, 3) == 125).all()


@pytest.mark.mpi
def test_a_run_over_mpi_compares_schedules(tmp_path, capfd):
    plan = direct_plan(Collective.ALLTOALL, 3)
    plans.save(plan, tmp_path / "plan.json")
    words = [
        "bench",
        "alltoall",
        "-b",
        "3000",
        "-e",
        "12000",
        "-f",
        "4",
        "-n",
        "2",
        "-w",
        "1",
        "-g",
        "3",
        "--skew",
        "0.8",
    ]
    assert main([*words, "--plan", str(tmp_path / "plan.json"), "--json", "-J", str(tmp_path / "rows.json")]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["ranks"] == 3
    assert len(answer["rows"]) == 6
    assert {row["schedule"] for row in answer["rows"]} == {f"plan {plan.digest[:8]}", "direct", "native"}
    assert all(row["wrong_bytes"] == 0 and row["seconds"] > 0 for row in answer["rows"])
    assert json.loads((tmp_path / "rows.json").read_text())["rows"] == answer["rows"]


def test_an_unknown_schedule_is_refused(capsys):
    assert main(["bench", "alltoall", "--schedules", "plan,fast"]) == 2
    assert "fast" in capsys.readouterr().err


@pytest.mark.mpi
@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_a_comparison_with_torch_needs_torch(capfd):
    assert main(["bench", "alltoall", "-b", "64", "-g", "2", "--schedules", "torch"]) != 0
    assert "--schedules: torch is not installed; install PyTorch or leave torch out" in capfd.readouterr().err
