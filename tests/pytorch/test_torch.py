"""Groups over gloo under torchrun, and torch's own call sites on plans."""

from __future__ import annotations

import pytest

from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective

pytestmark = pytest.mark.slow


def test_every_operation_over_gloo(torchrun):
    names = torchrun(4, "gloo")[0]["names"]
    assert "allreduce: native" in names
    assert "reduce_scatter: direct" in names


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
