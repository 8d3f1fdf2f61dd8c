"""Symmetries that fix the root of a broadcast or a reduce, and plans made with them."""

from __future__ import annotations

import numpy as np
import pytest

from solver import portfolio
from solver.bound import Problem, generate
from solver.stabiliser import MOST, find_stabiliser
from synth.collective import Collective, Demand
from synth.testing import assert_plan_implements
from synth.topology import Routes, catalog
from synth.topology.degrade import degrade

DEAD_NIC = {("n2/nic0", "fabric"): 0.0}


@pytest.mark.parametrize(
    ("name", "root", "order"),
    [
        ("hgx-h100x1", 3, 7),
        ("hgx-h100x4", 0, 21),
        ("hgx-h100x4", 13, 21),
        ("mi250x4", 0, 6),
        ("mesh5x5", 0, 2),
        ("mesh5x5", 12, 8),
        ("torus4x4x4", 0, 48),
        ("torus3x4x5", 37, 8),
    ],
)
def test_every_element_is_an_automorphism_that_fixes_the_root(name: str, root: int, order: int) -> None:
    routes = Routes.among(catalog.build(name))
    group = find_stabiliser(routes, root)
    assert group is not None
    assert group.order == order <= MOST
    assert group.fixed[root]
    assert len({element.tobytes() for element in group.elements}) == order
    for element in group.elements:
        assert element[root] == root
        image = routes.latency_ns[np.ix_(element, element)]
        assert (image == routes.latency_ns).all()


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
@pytest.mark.parametrize(
    ("name", "root", "links"),
    [("hgx-h100x2", 3, {}), ("hgx-h100x4", 9, DEAD_NIC), ("mi250x2", 5, {}), ("mesh5x5", 0, {})],
)
def test_orbits_of_links_have_the_optimum_of_all_links(
    name: str, root: int, links: dict[tuple[str, str], float], collective: Collective
) -> None:
    routes = Routes.among(degrade(catalog.build(name), links))
    demand = Demand(collective=collective, ranks=routes.ranks, bytes=10**9, root=root)
    few, every = Problem.of(routes, demand, symmetric=True), Problem.of(routes, demand)
    assert few.group is not None
    assert few.crossing.shape[1] < every.crossing.shape[1]
    assert generate(few).seconds == pytest.approx(generate(every).seconds, rel=5e-4)


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
@pytest.mark.parametrize(("name", "root", "most"), [("hgx-h100x4", 9, 1.60), ("torus3x3x3", 13, 1.30)])
def test_plans_are_whole_and_good(name: str, root: int, most: float, collective: Collective) -> None:
    machine = catalog.build(name)
    demand = Demand(collective=collective, ranks=len(machine.gpus), bytes=64_000_000, root=root)
    solved = portfolio.solve(machine, demand)
    assert solved.plan.symmetry is None
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.gap < most - 1
    assert portfolio.solve(machine, demand).plan.text == solved.plan.text
