import json

import numpy as np
import pytest

from synth.collective import Collective, Demand
from synth.errors import DemandError, InvalidPlan, LimitError
from synth.plan import Transfers
from synth.simulator import simulate
from synth.simulator.trace import chrome_trace
from synth.topology import catalog
from tests import plans

MACHINE = catalog.build("hgx-h100x1")


def test_one_direct_round() -> None:
    """Latency of two NVLink hops, then 7/8 of the buffer through one port."""
    plan = plans.direct_alltoall(MACHINE)
    result = simulate(plan, MACHINE, plans.demand(plan, 8_000_000), launch_ns=9000)
    assert result.seconds == pytest.approx((9000 + 700 + 7_000_000 / 450) * 1e-9)
    assert result.rounds == 1
    assert result.busbw_bytes_per_s == pytest.approx(result.algbw_bytes_per_s * 7 / 8)


def test_a_pipeline_of_segments() -> None:
    """Seven hops, four segments: ten rounds, each with one segment on every busy port."""
    plan = plans.chain(MACHINE, Collective.BROADCAST, segments=4)
    result = simulate(plan, MACHINE, plans.demand(plan, 4_500_000))
    assert result.rounds == 10
    assert result.seconds == pytest.approx(10 * (700 + 1_125_000 / 450) * 1e-9)


def test_the_timeline_knows_no_barriers() -> None:
    plan = plans.chain(MACHINE, Collective.BROADCAST, segments=1)
    result = simulate(plan, MACHINE, plans.demand(plan, 450_000), cost="timeline")
    assert result.seconds == pytest.approx(7 * (1000 + 700) * 1e-9)


def test_empty_rounds_cost_nothing() -> None:
    plan = plans.chain(MACHINE, Collective.BROADCAST, segments=1)
    late = plan.with_(
        transfers=Transfers(
            *(getattr(plan.transfers, n) for n in ("chunk", "src", "dst")),
            plan.transfers.round * 1000,
            plan.transfers.reduce,
        )
    )
    same = plans.demand(plan, 1000)
    assert simulate(late, MACHINE, same).seconds == pytest.approx(simulate(plan, MACHINE, same).seconds)
    assert simulate(late, MACHINE, same).rounds == 7


def test_uneven_bytes() -> None:
    plan = plans.direct_alltoall(MACHINE)
    matrix = np.zeros((8, 8))
    matrix[2, 5] = 450_000
    demand = Demand(collective=Collective.ALLTOALL, ranks=8, bytes=450_000, matrix=matrix)
    result = simulate(plan, MACHINE, demand)
    assert result.seconds == pytest.approx((1000 + 700) * 1e-9)
    assert np.count_nonzero(result.link_seconds) == 2


def test_demands_of_another_kind_are_refused() -> None:
    plan = plans.direct_alltoall(MACHINE)
    with pytest.raises(DemandError, match="the plan is alltoall among 8"):
        simulate(plan, MACHINE, Demand(collective=Collective.ALLGATHER, ranks=8, bytes=1))


def test_transfers_without_a_route_are_refused() -> None:
    plan = plans.direct_alltoall(MACHINE)
    with pytest.raises(InvalidPlan, match="no route between"):
        simulate(plan, catalog.build("ndv2x1"), plans.demand(plan, 1))


def test_the_trace_is_readable_json() -> None:
    plan = plans.chain(MACHINE, Collective.ALLREDUCE, segments=2)
    trace = json.loads(json.dumps(chrome_trace(plan, MACHINE, plans.demand(plan, 1000))))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 14 * 2 * 2  # transfers, segments, links per route
    assert {event["tid"] for event in spans} <= set(range(len(MACHINE.links)))


def test_a_timeline_without_end_is_refused() -> None:
    plan = plans.chain(MACHINE, Collective.BROADCAST, segments=2**20).with_(segments=2**22)
    with pytest.raises(LimitError, match="segment-transfers"):
        simulate(plan, MACHINE, plans.demand(plan, 1000), cost="timeline")
