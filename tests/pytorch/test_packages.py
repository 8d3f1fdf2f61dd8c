"""The real packages' own code, unmodified, on plans: outputs and gradients equal those over torch's gloo."""

from __future__ import annotations

import pytest

from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective
from tests.pytorch.conftest import need

pytestmark = pytest.mark.slow


@pytest.fixture
def planned(tmp_path):
    """A plan for two ranks, used untried."""
    plan = direct_plan(Collective.ALLTOALL, 2).with_(solver={"seed": 7})
    plans.save(plan, tmp_path / "plan.json")
    return plan, {"SYNTH_PLAN_FILE": str(tmp_path / "plan.json"), "SYNTH_TRIAL": "off"}


def test_deepspeeds_moe_layer(torchrun, planned):
    need("deepspeed")
    plan, environment = planned
    left = torchrun(4, "deepspeed", timeout=280, **environment)
    assert [answer["members"] for answer in left] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    for answer in left:  # there and back, forward and backward
        assert answer["counted"] == {f"alltoall: plan {plan.digest[:12]}": 4}, answer["version"]


def test_megatrons_all_to_all_and_token_dispatcher(torchrun, planned):
    need("megatron.core")
    plan, environment = planned
    for answer in torchrun(2, "megatron", timeout=280, **environment):
        assert answer["counted"] == {f"alltoall: plan {plan.digest[:12]}": 4}, answer["version"]
        # tokens and probabilities there, tokens back, and the gradients of the three
        assert answer["dispatched"] == {f"alltoall: plan {plan.digest[:12]}": 6}, answer["version"]


def test_vllms_default_all_to_all_manager(torchrun, tmp_path):
    need("vllm")
    files = []
    for collective in (Collective.ALLGATHER, Collective.REDUCE_SCATTER):
        plan = direct_plan(collective, 2).with_(solver={"seed": 7})
        files.append(str(tmp_path / f"{collective.value}.json"))
        plans.save(plan, files[-1])
    for answer in torchrun(2, "vllm", timeout=280, SYNTH_PLAN_FILE=":".join(files), SYNTH_TRIAL="off"):
        counted = {name.rpartition(" ")[0]: calls for name, calls in answer["counted"].items()}
        assert counted == {"allgather: plan": 3, "reduce_scatter: plan": 2}, answer["version"]
