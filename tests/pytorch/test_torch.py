"""Groups over gloo under torchrun, and torch's own call sites on plans."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective
from tests.pytorch.conftest import ROOT, need, start
from tests.server.conftest import fake_solver, serve

__all__ = ["fake_solver", "serve"]  # fixtures

pytestmark = pytest.mark.slow


def test_every_operation_over_gloo(torchrun):
    names = torchrun(4, "gloo")[0]["names"]
    assert "allreduce: native" in names
    assert "reduce_scatter: direct" in names


@pytest.mark.parametrize("meet", ["folder", "server"])
def test_ranks_without_torchrun_meet_elsewhere(tmp_path, serve, meet):
    need("torch")
    where = {"SYNTH_RENDEZVOUS": str(tmp_path / "meet")}
    if meet == "server":
        where = {"SYNTH_RENDEZVOUS": "server:job-1", "SYNTH_SERVER": serve("--workers", "0").url}
    with ThreadPoolExecutor(3) as pool:
        command = [sys.executable, "-m", "tests.pytorch.ranks", "gloo", str(tmp_path)]
        ended = [
            pool.submit(start, command, 100, PYTHONPATH=str(ROOT), SLURM_PROCID=str(rank), SLURM_NTASKS="3", **where)
            for rank in range(3)
        ]
    assert [one.result()[1] for one in ended] == [0, 0, 0], ended[0].result()[0]
    assert len(list(tmp_path.glob("gloo-*.json"))) == 3


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        ("dies-before", 6),
        ("dies", 2.5),
        ("dies-in-a-round", 2.5),
        ("dies-between-rounds", 2.5),
        ("stalls", 4.9),
        ("gives-up", 2.5),
    ],
)
def test_a_lost_rank_is_named_and_the_others_attach_again(torchrun, how, seconds):
    left = torchrun(3, "failing", how)
    for answer in left[:2]:
        assert answer["rank"] == 2, answer
        assert answer["seconds"] < seconds, answer
        assert answer["again"] == [0.0, 2.0, 4.0, 6.0]
    assert any("rank 2" in answer["said"] for answer in left[:2])


def test_unmodified_calls_use_a_plan(torchrun, tmp_path):
    plan = direct_plan(Collective.ALLTOALL, 2).with_(solver={"seed": 7})
    plans.save(plan, tmp_path / "plan.json")
    planned = {"SYNTH_PLAN_FILE": str(tmp_path / "plan.json"), "SYNTH_TRIAL": "off"}
    for answer in torchrun(4, "interposing", **planned):
        assert answer["names"] == [f"alltoall: plan {plan.digest[:12]}"]
        assert answer["reasons"]["alltoall"].startswith(f"plan {plan.digest[:12]} from file")


def test_functional_and_compiled_calls_use_a_plan_and_the_rest_is_torchs(torchrun, tmp_path):
    plan = direct_plan(Collective.ALLTOALL, 2).with_(solver={"seed": 7})
    plans.save(plan, tmp_path / "plan.json")
    planned = {"SYNTH_PLAN_FILE": str(tmp_path / "plan.json"), "SYNTH_TRIAL": "off"}
    on_plan = f"alltoall: plan {plan.digest[:12]}"
    for answer in torchrun(2, "functional", timeout=200, **planned):
        counted = answer["counted"]
        assert counted["exchange"] == {on_plan: 3}  # counts, rows, and the rows' gradients
        assert counted["compiled"] == {on_plan: 2}
        assert counted["elsewhere"] == counted["unplanned"] == {}


@pytest.mark.parametrize(
    ("launcher", "collective"),
    [("torchrun", "alltoall"), *(("its own", collective.value) for collective in Collective)],
)
def test_bench_compares_with_torch_over_gloo(tmp_path, launcher, collective):
    need("torch")
    words = ["bench", collective, "-b", "4096", "-n", "2", "-w", "1", "-g", "2", "-J", str(tmp_path / "rows.json")]
    words += ["--transport", "gloo", "--skew", "0.5", "--schedules", "direct,torch"]
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if launcher == "torchrun" else []
    output, status = start([sys.executable, *ranks, "-m", "synth", *words], 100, PYTHONPATH=str(ROOT))
    assert status == 0, output
    found = json.loads((tmp_path / "rows.json").read_text())
    assert found["transport"] == "gloo"
    assert [row["schedule"] for row in found["rows"]] == ["direct", "torch"]
    assert all(row["wrong_bytes"] == 0 and row["seconds"] > 0 for row in found["rows"])
