"""Machines that are not as they should be."""

from __future__ import annotations

import pytest

from solver import portfolio
from synth.collective import Collective, Demand
from synth.testing import assert_plan_implements
from synth.topology import catalog
from synth.topology.degrade import degrade


@pytest.mark.parametrize(
    ("factor", "collective", "gigabytes_per_s"),
    [(0.0, "alltoall", 87.5), (0.0, "allgather", 480.0), (0.5, "alltoall", 93.75), (0.5, "allgather", 506.67)],
)
def test_a_dead_or_slow_nic_costs_what_it_must(factor: float, collective: str, gigabytes_per_s: float) -> None:
    machine = degrade(catalog.build("hgx-h100x2"), {("n0/nic0", "fabric"): factor})
    demand = Demand(collective=Collective(collective), ranks=16, bytes=10**9)
    solved = portfolio.solve(machine, demand)
    assert solved.bound.algbw_bytes_per_s == pytest.approx(gigabytes_per_s * 1e9, rel=1e-3)
    assert solved.gap < 0.10
    assert_plan_implements(solved.plan, machine, demand)


@pytest.mark.parametrize("collective", [Collective.ALLREDUCE, Collective.BROADCAST, Collective.REDUCE])
def test_every_collective_goes_around_a_dead_nic(collective: Collective) -> None:
    machine = degrade(catalog.build("hgx-h100x2"), {("n0/nic0", "fabric"): 0.0})
    demand = Demand(collective=collective, ranks=16, bytes=10**6, root=3 if collective.rooted else None)
    assert_plan_implements(portfolio.solve(machine, demand).plan, machine, demand)
