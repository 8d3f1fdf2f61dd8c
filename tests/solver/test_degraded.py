"""Machines that are not as they should be."""

from __future__ import annotations

import pytest

from solver import portfolio
from synth.collective import Collective, Demand
from synth.errors import TopologyError
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


@pytest.mark.parametrize("collective", [c for c in Collective if c is not Collective.ALLREDUCE])
def test_idle_gpus_help(collective: Collective) -> None:
    machine = catalog.build("ndv2x1")
    members = ("n0/gpu0", "n0/gpu3", "n0/gpu5")
    helpers = tuple(gpu for gpu in machine.gpus if gpu not in members)
    pairs = ((0, 2),) if collective is Collective.SENDRECV else ()
    demand = Demand(collective=collective, ranks=3, bytes=10**9, root=1 if collective.rooted else None, pairs=pairs)
    solved = portfolio.solve(machine, demand, ranks=(*members, *helpers))
    assert solved.plan.helpers == 5
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.gap < 0.25


@pytest.mark.parametrize("size", [0, 10**5, 10**9])
def test_idle_gpus_help_an_allreduce(size: int) -> None:
    machine = catalog.build("ndv2x1")
    members = machine.gpus[:4]
    demand = Demand(collective=Collective.ALLREDUCE, ranks=4, bytes=size)
    helped = portfolio.solve(machine, demand, ranks=machine.gpus)
    assert helped.plan.helpers == 4
    assert_plan_implements(helped.plan, machine, demand)
    alone = portfolio.solve(machine, demand, ranks=members).predicted_seconds
    assert helped.predicted_seconds <= alone * (1.0 if size < 10**9 else 0.75)


def test_helpers_carry_more_than_the_members_alone_could() -> None:
    machine = catalog.build("mesh5x5")
    corners = tuple(machine.gpus[i] for i in (0, 4, 20, 24))
    demand = Demand(collective=Collective.ALLTOALL, ranks=4, bytes=10**8)
    rest = tuple(gpu for gpu in machine.gpus if gpu not in corners)
    assert_plan_implements(portfolio.solve(machine, demand, ranks=corners + rest).plan, machine, demand)
    with pytest.raises(TopologyError, match="cannot reach"):
        portfolio.solve(machine, demand, ranks=corners)
