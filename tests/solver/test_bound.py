"""The bound: known optima, with and without symmetry, and pricing against brute force."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from solver.bound import Problem, generate, prove
from solver.bound.forest import shallow_trees
from solver.bound.shallow import limited
from synth.collective import Collective, Demand
from synth.collective.cheapest import min_arborescence
from synth.testing import topologies
from synth.topology import Routes, Topology, catalog
from synth.verifier import proven_bound_ns

FAST = (
    "asym8", "ndv2x1", "ndv2x2", "ndv2x4", "dgx2x2", "hgx-h100x1", "hgx-h100x2", "hgx-a100x2", "mi250x1", "mesh5x5",
    "torus3x3x3",
)  # fmt: skip
COMMON = (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLREDUCE)


def demand_on(machine: Topology, collective: Collective, size: int = 10**9) -> Demand:
    root = 0 if collective.rooted else None
    pairs = ((0, 1),) if collective is Collective.SENDRECV else ()
    return Demand(collective=collective, ranks=len(machine.gpus), bytes=size, root=root, pairs=pairs)


@pytest.mark.parametrize("name", FAST)
def test_bounds_meet_the_known_optima(name: str, shared: Path) -> None:
    with (shared / "reference" / "optima.tsv").open() as file:
        known = {
            row["collective"]: float(row["optimum_algbw_GBps"]) * 1e9
            for row in csv.DictReader(file, delimiter="\t")
            if row["topology"] == name
        }
    machine = catalog.build(name)
    for collective in COMMON:
        bound = prove(machine, demand_on(machine, collective))
        assert bound.optimal
        bandwidth = 10**9 / (bound.certificate.bound_ns * 1e-9)
        assert bandwidth == pytest.approx(known[collective.value], rel=5e-3)


@pytest.mark.parametrize("name", ["asym8", "ndv2x1", "hgx-a100x2", "dgx2x2", "torus3x3x3"])
@pytest.mark.parametrize("collective", COMMON)
def test_symmetry_does_not_change_the_optimum(name: str, collective: Collective) -> None:
    machine = catalog.build(name)
    routes, demand = Routes.among(machine), demand_on(machine, collective)
    symmetric, plain = Problem.of(routes, demand, symmetric=True), Problem.of(routes, demand)
    assert symmetric.group is not None
    assert len(symmetric.commodities) < len(plain.commodities)
    assert generate(symmetric).seconds == pytest.approx(generate(plain).seconds, rel=3e-4)


@pytest.mark.parametrize("collective", list(Collective))
def test_a_bound_out_of_time_is_still_proven(collective: Collective) -> None:
    machine = catalog.build("mi250x1")
    demand = demand_on(machine, collective)
    bound = prove(machine, demand, time_limit=1e-3)
    assert bound.certificate.bound_ns <= proven_bound_ns(bound.certificate, Routes.among(machine), demand)
    assert bound.certificate.bound_ns > 0


def test_time_limits_are_kept() -> None:
    machine = catalog.build("torus4x4x4")
    problem = Problem.of(Routes.among(machine), demand_on(machine, Collective.ALLTOALL))
    calls = 0

    def cancel() -> bool:
        nonlocal calls
        calls += 1
        return calls > 3

    found = generate(problem, cancel=cancel, deadline=time.monotonic() + 60)
    assert not found.optimal
    assert found.bound > 0
    assert set(found.columns.commodity.tolist()) == set(range(len(problem.commodities)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(machine=topologies(most=7))
def test_shallow_trees_reach_everyone_and_cost_no_less_than_the_cheapest(machine: Topology) -> None:
    problem = Problem.of(Routes.among(machine), demand_on(machine, Collective.ALLGATHER))
    weights = problem.weights(np.linspace(1, 2, len(machine.links)))
    ranks = problem.routes.ranks
    depth = max(int(problem.hops.max()), 2)
    parents, _, prices = shallow_trees(weights[None, None], np.arange(ranks), depth, problem.hops)
    for root in range(ranks):
        levels = 0
        here = np.arange(ranks)
        while (here != root).any():
            here = np.where(here == root, root, parents[root][here])
            levels += 1
        assert levels <= depth
        hung = [weights[parents[root][v], v] for v in range(ranks) if v != root]
        assert sum(hung) == pytest.approx(prices[root])
        assert prices[root] >= min_arborescence(weights, root)[0] * (1 - 1e-9)


def test_limited_depth_reaches_the_bound_where_depth_is_enough() -> None:
    machine = catalog.build("hgx-h100x2")
    problem = Problem.of(Routes.among(machine), demand_on(machine, Collective.ALLGATHER))
    exact = generate(problem)
    shallow = generate(problem, pricer=limited(2), known_bound=exact.bound, known_prices=exact.prices, tolerance=1e-3)
    assert shallow.seconds == pytest.approx(exact.seconds, rel=2e-3)
    assert np.diff(shallow.columns.starts).max() == 15
