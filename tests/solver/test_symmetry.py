"""Groups of automorphisms: those that fix no rank, and those of machines of which one node is not like the others."""

from __future__ import annotations

import numpy as np
import pytest

from solver import portfolio
from solver.bound import Problem, generate
from solver.symmetry import find_group
from synth.collective import Collective, Demand
from synth.testing import assert_plan_implements
from synth.topology import Routes, Topology, catalog
from synth.topology.degrade import degrade

DEAD_NIC = {("n0/nic0", "fabric"): 0.0}
SLOW_GPU = {("n2/gpu5", "n2/nvswitch"): 0.5}


def asked(machine: Topology, collective: Collective, size: int = 10**9) -> Demand:
    return Demand(collective=collective, ranks=len(machine.gpus), bytes=size)


@pytest.mark.parametrize(
    ("name", "links", "order", "fixed"),
    [
        ("hgx-h100x4", {}, 32, 0),
        ("hgx-h100x4", DEAD_NIC, 24, 8),
        ("hgx-h100x4", SLOW_GPU, 24, 8),
        ("mesh5x5", {}, 4, 1),
        ("mesh10x10", {("n0/gpu44", "n0/gpu45"): 0.0}, 2, 0),
        ("mi250x4", {("n0/gpu0", "n0/gpu4"): 0.5}, 6, 16),
    ],
)
def test_a_group_fixes_what_stands_out_and_nothing_else(
    name: str, links: dict[tuple[str, str], float], order: int, fixed: int
) -> None:
    machine = degrade(catalog.build(name), links)
    routes = Routes.among(machine)
    group = find_group(routes, asked(machine, Collective.ALLGATHER))
    assert group is not None
    assert (group.order, group.fixed.sum(), group.free) == (order, fixed, not fixed)
    assert len(group.representatives) == fixed + (routes.ranks - fixed) // order
    everyone = np.arange(routes.ranks)
    for element in group.elements[1:]:
        assert ((element == everyone) == group.fixed).all()
        image = routes.latency_ns[np.ix_(element, element)]
        assert (image == routes.latency_ns).all()


@pytest.mark.parametrize("collective", [Collective.ALLTOALL, Collective.ALLGATHER, Collective.ALLREDUCE])
@pytest.mark.parametrize(("name", "links"), [("hgx-h100x4", DEAD_NIC), ("hgx-h100x4", SLOW_GPU), ("mesh5x5", {})])
def test_one_commodity_per_orbit_has_the_optimum_of_all(
    name: str, links: dict[tuple[str, str], float], collective: Collective
) -> None:
    machine = degrade(catalog.build(name), links)
    routes, demand = Routes.among(machine), asked(machine, collective)
    few, every = Problem.of(routes, demand, symmetric=True), Problem.of(routes, demand)
    assert few.group is not None
    assert not few.group.free
    assert len(few.commodities) < len(every.commodities)
    assert generate(few).seconds == pytest.approx(generate(every).seconds, rel=5e-4)


@pytest.mark.parametrize(
    "collective", [Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLREDUCE]
)
@pytest.mark.parametrize("links", [DEAD_NIC, SLOW_GPU])
def test_plans_of_machines_with_one_odd_node_are_whole_and_good(
    collective: Collective, links: dict[tuple[str, str], float]
) -> None:
    machine = degrade(catalog.build("hgx-h100x4"), links)
    demand = asked(machine, collective)
    solved = portfolio.solve(machine, demand)
    assert solved.plan.symmetry is None
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.gap < 0.12
    assert portfolio.solve(machine, demand).plan.text == solved.plan.text


def test_a_demand_that_is_not_symmetric_is_solved_without() -> None:
    machine = degrade(catalog.build("hgx-h100x4"), DEAD_NIC)
    matrix = np.ones((32, 32))
    matrix[9, 20] = 2.0
    demand = Demand(collective=Collective.ALLTOALL, ranks=32, bytes=32, matrix=matrix)
    assert find_group(Routes.among(machine), demand) is None
