"""Groups over gloo under torchrun, and torch's own call sites on plans."""

from __future__ import annotations

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


@pytest.mark.parametrize(("how", "seconds"), [("dies", 2.5), ("stalls", 4.9), ("gives-up", 2.5)])
def test_a_lost_rank_is_named(torchrun, how, seconds):
    left = torchrun(3, "failing", how)
    for answer in left[:2]:
        assert answer["rank"] == 2, answer
        assert answer["seconds"] < seconds, answer
    assert any("rank 2" in answer["said"] for answer in left[:2])


def test_unmodified_calls_use_a_plan(torchrun, tmp_path):
    plan = direct_plan(Collective.ALLTOALL, 2).with_(solver={"seed": 7})
    plans.save(plan, tmp_path / "plan.json")
    planned = {"SYNTH_PLAN_FILE": str(tmp_path / "plan.json"), "SYNTH_TRIAL": "off"}
    for answer in torchrun(4, "interposing", **planned):
        assert answer["names"] == [f"alltoall: plan {plan.digest[:12]}"]
        assert answer["reasons"]["alltoall"].startswith(f"plan {plan.digest[:12]} from file")
