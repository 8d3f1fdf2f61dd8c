"""Exact schedules: known answers for the DGX-1, and the bound against true optima."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.bound import prove
from solver.exact import least_steps, least_time
from synth.collective import Collective, Demand
from synth.errors import DemandError, SolveError
from synth.simulator import simulate
from synth.testing import topologies
from synth.topology import Routes, Topology, catalog
from synth.verifier import verify

DGX1 = catalog.build("ndv2x1")  # the mesh of a DGX-1 V100


def test_the_dgx1_gathers_in_two_rounds_and_not_in_one() -> None:
    routes = Routes.among(DGX1)
    demand = Demand(collective=Collective.ALLGATHER, ranks=8, bytes=8)
    found = least_steps(routes, demand, rounds=2, chunks=1, unit_bytes_per_s=25e9)
    assert found.proven
    assert found.value == 2
    assert not verify(found.plan, DGX1)
    with pytest.raises(SolveError):
        least_steps(routes, demand, rounds=1, chunks=1, unit_bytes_per_s=25e9)


def test_the_dgx1_gathers_six_chunks_in_three_rounds_of_seven_slots() -> None:
    """The bandwidth-optimal point of SCCL's table."""
    demand = Demand(collective=Collective.ALLGATHER, ranks=8, bytes=48)
    found = least_steps(Routes.among(DGX1), demand, rounds=3, chunks=6, unit_bytes_per_s=25e9)
    assert found.proven
    assert found.value == 7
    assert not verify(found.plan, DGX1)


def test_the_fastest_small_allgather_prices_as_it_says() -> None:
    routes = Routes.among(DGX1)
    demand = Demand(collective=Collective.ALLGATHER, ranks=8, bytes=8_000)
    found = least_time(routes, demand, rounds=2, launch_ns=9000, time_limit=20)
    assert not verify(found.plan, DGX1)
    seconds = simulate(found.plan, DGX1, demand, launch_ns=9000).seconds
    assert seconds * 1e9 == pytest.approx(found.value, rel=1e-6)
    assert found.bound <= found.value * (1 + 1e-9)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(machine=topologies(most=4), collective=st.sampled_from([Collective.ALLGATHER, Collective.ALLTOALL]))
def test_the_bound_is_at_most_the_true_optimum(machine: Topology, collective: Collective) -> None:
    demand = Demand(collective=collective, ranks=len(machine.gpus), bytes=10**6)
    found = least_time(Routes.among(machine), demand, rounds=len(machine.gpus) - 1, time_limit=10)
    assert not verify(found.plan, machine)
    assert prove(machine, demand).seconds <= found.value * 1e-9 * (1 + 1e-6)


def test_what_is_not_served_is_said() -> None:
    with pytest.raises(DemandError, match="allreduce"):
        least_time(Routes.among(DGX1), Demand(collective=Collective.ALLREDUCE, ranks=8, bytes=8), rounds=2)
