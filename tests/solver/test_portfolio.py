"""The front door: quality, limits, determinism, candidates."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import portfolio
from solver.bound import Problem
from solver.schedule.timing import Pipeline
from synth.collective import Collective, Demand
from synth.plan import expand
from synth.plan.sizes import chunk_bytes
from synth.simulator import simulate
from synth.testing import assert_plan_implements, demands, topologies
from synth.topology import Routes, Topology, catalog

MOST = {
    "alltoall": 1.02,
    "allgather": 1.10,
    "reduce_scatter": 1.10,
    "allreduce": 1.15,
    "broadcast": 1.15,
    "reduce": 1.15,
}


def asked(machine: Topology, collective: str, size: int = 10**9) -> Demand:
    kind = Collective(collective)
    return Demand(collective=kind, ranks=len(machine.gpus), bytes=size, root=0 if kind.rooted else None)


@pytest.mark.parametrize("name", ["asym8", "ndv2x1", "hgx-h100x2", "mi250x1", "dgx2x2"])
@pytest.mark.parametrize("collective", list(MOST))
def test_large_plans_are_close_to_the_bound(name: str, collective: str) -> None:
    machine = catalog.build(name)
    demand = asked(machine, collective)
    solved = portfolio.solve(machine, demand)
    assert solved.predicted_seconds <= MOST[collective] * solved.bound.seconds
    assert_plan_implements(solved.plan, machine, demand)


def test_a_skewed_alltoall_is_close_to_the_bound() -> None:
    machine = catalog.build("hgx-h100x2")
    random = np.random.default_rng(7)
    popularity = 1 / np.arange(1, 17) ** 1.2
    matrix = np.floor(np.outer(np.ones(16), random.permutation(popularity / popularity.sum())) * 1e9)
    np.fill_diagonal(matrix, 0)
    demand = Demand(collective=Collective.ALLTOALL, ranks=16, bytes=int(matrix.sum(axis=1).max()), matrix=matrix)
    solved = portfolio.solve(machine, demand)
    assert solved.gap <= 0.02
    assert solved.candidates["direct"] > 1.5 * solved.predicted_seconds
    assert_plan_implements(solved.plan, machine, demand)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_same_request_gives_the_same_bytes(symmetric: bool) -> None:
    machine = catalog.build("dgx2x2")
    demand = asked(machine, "allgather")
    texts = {portfolio.solve(machine, demand, symmetric=symmetric).plan.text for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("limit", [0.05, 0.5])
def test_a_short_time_limit_still_gives_a_valid_plan(limit: float) -> None:
    machine = catalog.build("mi250x2")
    demand = asked(machine, "allgather")
    began = time.monotonic()
    solved = portfolio.solve(machine, demand, time_limit=limit, symmetric=False)
    assert time.monotonic() - began < limit + 5  # what is left is finding routes, building and checking
    assert solved.termination is portfolio.Termination.TIME_LIMIT
    assert_plan_implements(solved.plan, machine, demand)


def test_cancel_gives_the_best_so_far() -> None:
    machine = catalog.build("ndv2x2")
    solved = portfolio.solve(machine, asked(machine, "allgather"), cancel=lambda: True)
    assert solved.termination is portfolio.Termination.CANCELLED
    assert_plan_implements(solved.plan, machine, solved.demand)


def test_large_symmetric_plans_list_representatives() -> None:
    machine = catalog.build("hgx-h100x16")
    demand = asked(machine, "alltoall")
    solved = portfolio.solve(machine, demand)
    assert solved.plan.symmetry is not None
    assert solved.plan.symmetry.order == 128
    assert len(solved.plan.chunks) < 128**2 / 64
    whole = simulate(solved.plan, machine, demand)
    assert whole.seconds == pytest.approx(solved.predicted_seconds, rel=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_pipeline_prices_as_the_cost_model_does(data: st.DataObject) -> None:
    machine = data.draw(topologies(most=6))
    demand = data.draw(demands(len(machine.gpus)))
    plan = expand(portfolio.solve(machine, demand).plan)
    routes = Routes.among(machine)
    transfers = plan.transfers
    pipeline = Pipeline(
        Problem.of(routes, demand),
        transfers.round,
        transfers.src * routes.ranks + transfers.dst,
        chunk_bytes(plan, demand)[transfers.chunk],
        9000.0,
    )
    for segments in (1, 2, 5, 17):
        official = simulate(plan.with_(segments=segments), machine, demand, launch_ns=9000.0).seconds
        assert pipeline.seconds(segments) == pytest.approx(official, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "size", "collective", "published"),
    [
        ("dgx2x2", 10**3, "allgather", 4.006e-6),
        ("dgx2x2", 10**6, "alltoall", 1e6 / 11.87e9),
        ("ndv2x2", 64_000, "alltoall", 64e3 / 1.271e9),
        ("ndv2x2", 10**6, "allgather", 1e6 / 16.09e9),
    ],
)
def test_timelines_beat_published_ones(name: str, size: int, collective: str, published: float) -> None:
    machine = catalog.build(name)
    solved = portfolio.solve(machine, asked(machine, collective, size), cost="timeline")
    assert solved.predicted_seconds < published
    assert_plan_implements(solved.plan, machine, solved.demand)


def test_a_dgx1_gathers_as_fast_as_sccls_two_steps() -> None:
    machine = catalog.build("ndv2x1")
    solved = portfolio.solve(machine, asked(machine, "allgather", 10**6))
    slots = 3 * 10**6 / 8 / 2 / 25e9  # six chunks per block over three rounds of one link each, in two steps
    assert solved.predicted_seconds == pytest.approx(slots + 2 * 700e-9, rel=1e-3)


LARGER = ("dgx2x2", "hgx-h100x4", "mesh5x5", "mi250x1", "mi250x2", "ndv2x1", "ndv2x2", "ndv2x4", "torus3x3x3")
BASELINES = ("direct", "ring", "halving-doubling", "two-level", "binomial-tree")


@pytest.mark.parametrize("name", ["asym8", "hgx-a100x2", *(pytest.param(n, marks=pytest.mark.slow) for n in LARGER)])
@pytest.mark.parametrize("collective", list(MOST))
def test_never_worse_than_the_baselines(name: str, collective: str) -> None:
    machine = catalog.build(name)
    demand = asked(machine, collective)
    problem = Problem.of(Routes.among(machine), demand, symmetric=True)
    serving = {strategy.name for strategy in portfolio.STRATEGIES if strategy.serves(problem)} & set(BASELINES)
    assert serving or name in LARGER  # where some pairs of ranks have no route, few of them serve
    for size in (10**3, 64_000, 10**6):
        solved = portfolio.solve(machine, asked(machine, collective, size), launch_ns=9000)
        assert serving <= set(solved.candidates)
        assert solved.predicted_seconds == min(solved.candidates.values())
        official = simulate(solved.plan, machine, solved.demand, launch_ns=9000).seconds
        assert official == pytest.approx(solved.predicted_seconds, rel=1e-9)


@pytest.mark.parametrize("calls", [1, 20, 60])
@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_whenever_it_is_stopped_there_is_a_plan(collective: str, calls: int) -> None:
    machine = catalog.build("mi250x1")
    asks = 0

    def cancel() -> bool:
        nonlocal asks
        asks += 1
        return asks > calls

    demand = asked(machine, collective)
    solved = portfolio.solve(machine, demand, cancel=cancel)
    assert solved.termination is portfolio.Termination.CANCELLED
    assert asks < calls + 40  # nobody asks again and again without giving up
    assert_plan_implements(solved.plan, machine, demand)


@pytest.mark.parametrize("name", ["asym8", "hgx-a100x2"])
@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reduce_scatter", "allreduce"])
def test_timelines_of_large_plans_are_close_to_the_bound(name: str, collective: str) -> None:
    machine = catalog.build(name)
    solved = portfolio.solve(machine, asked(machine, collective), cost="timeline")
    assert solved.predicted_seconds <= (1.01 if collective == "alltoall" else 1.05) * solved.bound.seconds
    assert_plan_implements(solved.plan, machine, solved.demand)
