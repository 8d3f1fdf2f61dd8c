"""Exact schedules: known answers for the DGX-1, the bound against true optima, reductions, stopping."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import exact
from solver.bound import Problem, prove
from solver.exact import Clock, Objective, Search, least_rounds, least_time
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.errors import DemandError, LimitError, SolveError
from synth.simulator import simulate
from synth.testing import assert_plan_implements, topologies
from synth.topology import Routes, Topology, catalog
from synth.verifier import verify

DGX1 = catalog.build("ndv2x1")  # the mesh of a DGX-1 V100


def demand_of(collective: Collective, ranks: int, size: int) -> Demand:
    pairs = ((0, 1), (1, 0)) if collective is Collective.SENDRECV else ()
    return Demand(collective=collective, ranks=ranks, bytes=size, root=0 if collective.rooted else None, pairs=pairs)


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.REDUCE_SCATTER])
def test_the_dgx1_gathers_in_two_rounds_and_not_in_one(collective: Collective) -> None:
    found = exact.solve(DGX1, demand_of(collective, 8, 8), objective="rounds")
    assert found.exact.proven
    assert found.exact.value == 2
    assert found.used
    assert found.solved.plan.rounds == 2
    assert_plan_implements(found.solved.plan, DGX1, found.solved.demand)
    with pytest.raises(DemandError, match="too few"):
        exact.solve(DGX1, demand_of(collective, 8, 8), objective="rounds", rounds=1)


def test_the_dgx1_gathers_six_chunks_in_three_rounds_of_seven_slots() -> None:
    """The bandwidth-optimal point of SCCL's table."""
    found = exact.solve(DGX1, demand_of(Collective.ALLGATHER, 8, 48), objective="slots", rounds=3, chunks=6)
    assert found.exact.proven
    assert found.exact.value == 7
    assert found.exact.rounds == 3
    assert not verify(found.solved.plan, DGX1)


@pytest.mark.parametrize("collective", Collective)
def test_the_fastest_small_schedule_prices_as_it_says(collective: Collective) -> None:
    demand = demand_of(collective, 8, 8_000)
    found = exact.solve(DGX1, demand, launch_ns=9000, time_limit=20)
    assert_plan_implements(found.solved.plan, DGX1, demand)
    assert found.exact.proven
    assert found.exact.any_rounds
    assert found.exact.bound >= found.solved.bound.seconds * (1 - 1e-9)
    assert found.solved.predicted_seconds <= found.exact.value * (1 + 1e-9)
    assert found.solved.candidates["exact"] == pytest.approx(found.exact.value, rel=1e-6)
    priced = simulate(found.solved.plan, DGX1, demand, launch_ns=9000).seconds
    assert priced == pytest.approx(found.solved.predicted_seconds, rel=1e-9)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    machine=topologies(most=5),
    collective=st.sampled_from([member for member in Collective if member is not Collective.ALLREDUCE]),
    size=st.sampled_from([10**3, 10**6]),
)
def test_the_bound_is_at_most_the_true_optimum(machine: Topology, collective: Collective, size: int) -> None:
    demand = demand_of(collective, len(machine.gpus), size)
    problem = Problem.of(Routes.among(machine), demand)
    found = least_time(Search(problem=problem, clock=Clock.after(2)))
    assert found.draft is not None
    plan = replace(found.draft, whole=True).plan(problem)
    assert not verify(plan, machine)
    assert simulate(plan, machine, demand).seconds == pytest.approx(found.value, rel=1e-6)
    assert prove(machine, demand).seconds <= found.value * (1 + 1e-6)
    assert found.bound <= found.value
    halves = exact.solve(machine, replace(demand, collective=Collective.ALLREDUCE, root=None, pairs=()), time_limit=2)
    assert_plan_implements(halves.solved.plan, machine, halves.solved.demand)
    assert halves.solved.bound.seconds <= halves.exact.value * (1 + 1e-6)


def test_sixteen_ranks_that_look_alike_are_served() -> None:
    machine = catalog.build("hgx-h100x2")
    found = exact.solve(machine, demand_of(Collective.ALLGATHER, 16, 64_000), launch_ns=9000)
    assert found.exact.proven
    assert found.exact.symmetric
    assert found.exact.rounds == 1
    assert_plan_implements(found.solved.plan, machine, found.solved.demand)


def test_rounds_of_one_slot_carry_one_chunk_per_unit_of_rate() -> None:
    machine = catalog.build("mi250x1")
    found = exact.solve(machine, demand_of(Collective.ALLGATHER, 16, 16_000), objective="rounds", time_limit=30)
    assert found.exact.proven
    assert found.exact.symmetric
    plan = plans.expand(found.solved.plan)
    routes = Routes.among(machine)
    unit = machine.bytes_per_s[np.unique(routes.links)].min()
    for round in range(plan.rounds):
        here = plan.transfers.round == round
        pair = plan.transfers.src[here] * 16 + plan.transfers.dst[here]
        _, links = routes.incidence(pair)
        carried = np.bincount(links, minlength=len(machine.links))
        assert (carried <= machine.bytes_per_s / unit).all()


def test_what_is_not_served_is_said() -> None:
    with pytest.raises(DemandError, match="at most 16"):
        exact.solve(catalog.build("hgx-h100x4"), demand_of(Collective.ALLGATHER, 32, 64))
    with pytest.raises(DemandError, match="at most 8"):
        exact.solve(catalog.build("mi250x1"), demand_of(Collective.BROADCAST, 16, 64))
    with pytest.raises(LimitError, match="fewer chunks"):
        exact.solve(DGX1, demand_of(Collective.ALLTOALL, 8, 64), objective=Objective.SLOTS, chunks=64)
    problem = Problem.of(Routes.among(DGX1), demand_of(Collective.ALLGATHER, 8, 64))
    with pytest.raises(SolveError, match="no schedule of 2 rounds"):
        least_rounds(Search(problem=problem, chunks=6, rounds=2, clock=Clock.after(20)))


def test_a_cancelled_search_keeps_the_strategies_plan() -> None:
    found = exact.solve(DGX1, demand_of(Collective.ALLGATHER, 8, 8_000), cancel=lambda: True)
    assert not found.used
    assert not found.exact.proven
    assert not verify(found.solved.plan, DGX1)


def test_the_command_proves_and_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    words = ["solve", "ndv2x1", "--collective", "allgather", "--bytes", "8KB", "--exact", "rounds", "-o", str(file)]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["strategy"] == "exact"
    assert answer["exact"]["value"] == answer["exact"]["bound"] == plans.load(file).rounds == 2
    assert answer["exact"]["proven"]
    assert main(words) == 0
    assert "proven, the least number of rounds of one slot with whole blocks: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rounds", "3"], "--rounds: goes with --exact"),
        (["--exact", "--chunks", "0"], "--chunks: is 0"),
        (["--exact", "--strategy", "ring"], "--exact"),
        (["--exact", "--range", "1KB:1MB"], "--range"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", "ndv2x1", "--collective", "allgather", *words]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


def test_ctrl_c_stops_an_integer_program(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    words = ["solve", "ndv2x1", "--collective", "allgather", "--bytes", "1MB", "--exact", "--chunks", "6"]
    process = subprocess.Popen(
        [sys.executable, "-m", "synth", *words, "--rounds", "3", "--json", "-o", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("exact, at most 3 rounds"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    answer = json.loads(out)
    assert answer["termination"] == "cancelled"
    assert answer["exact"]["bound"] <= answer["predicted_seconds"]
    assert not verify(plans.load(file), DGX1)
