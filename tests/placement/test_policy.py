import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.schedule import spread
from synth.collective import Collective, Demand
from synth.errors import PlanError
from synth.plan import Chunks, Plan, Transfers
from synth.simulator import simulate
from synth.simulator.policy import Policy
from synth.testing.traces import drifting_zipf
from synth.topology import Topology, catalog
from synth.verifier import verify
from tests.groups.machines import switched


def direct_plan(topology: Topology) -> Plan:
    count = len(topology.gpus)
    origin, target = (axis.ravel() for axis in np.indices((count, count)))
    origin, target = origin[origin != target], target[origin != target]
    one, none = np.ones(len(origin), dtype=int), np.zeros(len(origin), dtype=int)
    return Plan(
        collective=Collective.ALLTOALL,
        ranks=topology.gpus,
        topology=topology.fingerprint,
        segments=1,
        denominator=1,
        chunks=Chunks(origin, target, one),
        transfers=Transfers(np.arange(len(origin)), origin, target, none, none).sorted(),
    )


def spread_plan(topology: Topology, segments: int = 16) -> Plan:
    draft = spread.draft(topology, topology.gpus)
    return direct_plan(topology).with_(
        chunks=draft.chunks, transfers=draft.transfers, denominator=draft.denominator, segments=segments
    )


def both(topology: Topology, segments: int = 16) -> dict[str, Plan]:
    return {"direct": direct_plan(topology), "spread": spread_plan(topology, segments)}


def demand_of(matrix: np.ndarray) -> Demand:
    return Demand(
        collective=Collective.ALLTOALL,
        ranks=len(matrix),
        bytes=int(matrix.sum(axis=1).max()),
        matrix=matrix.astype(float),
    )


H100X2 = catalog.build("hgx-h100x2")
PLANS = both(H100X2)
POLICY = Policy(PLANS, H100X2, launch_ns=9000.0)


@pytest.mark.parametrize("topology", [H100X2, catalog.build("hgx-h100x1"), switched((4, 2, 3))], ids=lambda t: t.name)
def test_spread_is_a_valid_alltoall(topology):
    assert verify(spread_plan(topology, segments=3), topology) == ()


def test_spread_loads_all_rails_alike():
    matrix = np.zeros((16, 16))
    matrix[:8, 8] = 1e9  # everyone of node 0 sends to one rank of node 1
    seconds = simulate(spread_plan(H100X2, 64), H100X2, demand_of(matrix)).seconds
    assert seconds == pytest.approx(8e9 / 8 / 50e9, rel=0.05)
    assert simulate(direct_plan(H100X2), H100X2, demand_of(matrix)).seconds == pytest.approx(8e9 / 50e9, rel=0.01)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0, 2), st.sampled_from([1, 3, 16]))
def test_prices_are_those_of_the_cost_model(seed, skew, segments):
    rng = np.random.default_rng(seed)
    matrix = 1 + (rng.lognormal(0, skew, (16, 16)) * 1e6).astype(np.int64)
    plans = PLANS if segments == 16 else both(H100X2, segments)
    policy = POLICY if segments == 16 else Policy(plans, H100X2, launch_ns=9000.0)
    exact = [simulate(plan, H100X2, demand_of(matrix), launch_ns=9000.0).seconds for plan in plans.values()]
    assert policy.seconds(matrix) == pytest.approx(exact, rel=1e-6)
    assert policy.choose(matrix).plan == int(np.argmin(exact))


def test_plans_without_structure_are_priced_too():
    # unequal nodes, and a plan that moves one pair's data over a third rank
    topology = switched((3, 2))
    plans = both(topology, 2)
    plan = plans["direct"]
    chosen = np.flatnonzero((plan.transfers.src == 0) & (plan.transfers.dst == 4))[0]
    moved = plan.transfers
    relay = Transfers(
        *(
            np.append(column, value)
            for column, value in (
                (moved.chunk, moved.chunk[chosen]),
                (moved.src, 2),
                (moved.dst, 4),
                (moved.round, 1),
                (moved.reduce, 0),
            )
        )
    )
    relay.dst[chosen] = 2
    plans["relayed"] = plan.with_(transfers=relay.sorted())
    matrix = np.random.default_rng(1).integers(10**5, 10**7, (5, 5))
    exact = [simulate(plan, topology, demand_of(matrix)).seconds for plan in plans.values()]
    assert Policy(plans, topology).seconds(matrix) == pytest.approx(exact, rel=1e-6)


def test_every_rank_gets_the_same_answer():
    matrices = list(drifting_zipf(16, 20, skew=0.8, seed=4))
    here = [POLICY.choose(matrix).seconds for matrix in matrices]
    assert [Policy(both(H100X2), H100X2, launch_ns=9000.0).choose(matrix).seconds for matrix in matrices] == here
    script = (
        "import pickle, sys\n"
        "from synth.simulator.policy import Policy\n"
        "plans, topology, matrices = pickle.load(sys.stdin.buffer)\n"
        "policy = Policy(plans, topology, launch_ns=9000.0)\n"
        "sys.stdout.write(repr([policy.choose(matrix).seconds for matrix in matrices]))\n"
    )
    data = pickle.dumps((PLANS, H100X2, matrices))
    other = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
    assert other.stdout.decode() == repr(here)


def test_skew_decides():
    even = np.full((16, 16), 10**7)
    assert POLICY.choose(even).name == "direct"
    hot = even.copy()
    hot[:8, 8] *= 20
    assert POLICY.choose(hot).name == "spread"


def test_trace_is_reproducible_and_keeps_the_number_of_tokens():
    first, again = (list(drifting_zipf(32, 5, skew=0.8, seed=7)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    for matrix in first:
        assert (matrix.sum(axis=1) == 4096 * 8 * 7168).all()
    digest = hashlib.sha256(np.stack(first).tobytes()).hexdigest()
    assert digest != hashlib.sha256(np.stack(list(drifting_zipf(32, 5, skew=0.8, seed=8))).tobytes()).hexdigest()


def test_policy_stays_close_to_the_bound_on_a_short_trace():
    from solver.bound import Problem, generate
    from synth.topology import Routes

    topology = catalog.build("hgx-h100x4")
    plans, routes = both(topology), Routes.among(topology)
    policy = Policy(plans, topology, launch_ns=9000.0)
    chosen = best = direct = bound = 0.0
    for matrix in drifting_zipf(32, 4, skew=0.8, seed=0):
        seconds = {
            name: simulate(plan, topology, demand_of(matrix), launch_ns=9000.0, routes=routes).seconds
            for name, plan in plans.items()
        }
        chosen += seconds[policy.choose(matrix).name]
        best += min(seconds.values())
        direct += seconds["direct"]
        bound += generate(Problem.of(routes, demand_of(matrix))).bound
    assert chosen <= 1.05 * best
    assert chosen <= 1.15 * bound
    assert direct >= 1.8 * chosen


def test_plans_that_do_not_belong_together_are_refused():
    with pytest.raises(PlanError, match="at least one"):
        Policy({}, H100X2)
    other = catalog.build("hgx-h100x1")
    with pytest.raises(PlanError, match="same ranks"):
        Policy({"direct": direct_plan(H100X2), "other": direct_plan(other)}, H100X2)
