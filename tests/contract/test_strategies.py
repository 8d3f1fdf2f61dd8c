"""The contract every strategy keeps, over generated topologies and demands, judged by the same validators."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver import portfolio
from solver.bound import Problem
from solver.schedule.draft import Strategy
from synth.collective import Collective, Demand
from synth.testing import assert_plan_implements, demands, topologies
from synth.topology import Routes, Topology, catalog

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def requests(draw: st.DrawFn, *, most: int = 7) -> tuple[Topology, Demand]:
    topology = draw(topologies(most=most))
    return topology, draw(demands(len(topology.gpus)))


@pytest.mark.parametrize("strategy", portfolio.STRATEGIES, ids=lambda strategy: strategy.name)
@SETTINGS
@given(request=requests(), launch_ns=st.sampled_from([0.0, 9000.0]))
def test_every_strategy_keeps_the_contract(
    strategy: Strategy, request: tuple[Topology, Demand], launch_ns: float
) -> None:
    topology, demand = request
    if not strategy.serves(Problem.of(Routes.among(topology), demand)):
        return
    solved = portfolio.solve(topology, demand, strategies=[strategy.name], launch_ns=launch_ns)
    assert solved.strategy == strategy.name
    assert_plan_implements(solved.plan, topology, demand)
    assert solved.gap >= 0
    assert solved.predicted_seconds >= solved.bound.seconds * (1 - 1e-9)
    again = portfolio.solve(topology, demand, strategies=[strategy.name], launch_ns=launch_ns)
    assert again.plan.text == solved.plan.text


@SETTINGS
@given(request=requests(most=6), cost=st.sampled_from(["rounds", "timeline"]))
def test_the_portfolio_is_as_good_as_each_strategy(request: tuple[Topology, Demand], cost: str) -> None:
    topology, demand = request
    solved = portfolio.solve(topology, demand, cost=cost)
    assert_plan_implements(solved.plan, topology, demand)
    assert solved.predicted_seconds == min(solved.candidates.values())


@pytest.mark.parametrize("strategy", portfolio.STRATEGIES, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("name", ["ndv2x1", "hgx-a100x2"])
def test_every_strategy_keeps_the_contract_on_symmetric_machines(strategy: Strategy, name: str) -> None:
    machine = catalog.build(name)
    count = len(machine.gpus)
    for collective in Collective:
        demand = Demand(
            collective=collective,
            ranks=count,
            bytes=10**6,
            root=1 if collective.rooted else None,
            pairs=((0, 3), (2, 1)) if collective is Collective.SENDRECV else (),
        )
        if not strategy.serves(Problem.of(Routes.among(machine), demand, symmetric=True)):
            continue
        for symmetric in (True, False):
            solved = portfolio.solve(machine, demand, strategies=[strategy.name], symmetric=symmetric)
            assert_plan_implements(solved.plan, machine, demand)
