"""Oblivious plans: the guarantee holds for every matrix, is tight where it can be, and beats the direct exchange's."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import portfolio
from solver.bound import Problem
from solver.oblivious import Hose, best_worst_case, guarantee
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.plan import Plan
from synth.simulator import simulate
from synth.testing import assert_plan_implements, topologies
from synth.topology import Routes, Topology, catalog


def alltoall(ranks: int, matrix: np.ndarray | None = None, size: int = 10**7) -> Demand:
    return Demand(collective=Collective.ALLTOALL, ranks=ranks, bytes=size, matrix=matrix)


def seconds(plan: Plan, machine: Topology, matrix: np.ndarray) -> float:
    sent = max(int(matrix.sum(axis=1).max()), 1)
    return simulate(plan, machine, alltoall(len(matrix), matrix, sent)).seconds


def permutations(hose: Hose, count: int, seed: int = 0) -> list[np.ndarray]:
    """Matrices at the corners of an even hose."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        image = random.permutation(hose.ranks)
        matrix = np.zeros((hose.ranks, hose.ranks))
        matrix[np.arange(hose.ranks), image] = hose.send[0]
        np.fill_diagonal(matrix, 0.0)
        found.append(matrix)
    return found


def inside(hose: Hose, seed: int) -> np.ndarray:
    """A random matrix that fills rows and columns as far as they go."""
    random = np.random.default_rng(seed)
    matrix = random.zipf(1.5, (hose.ranks, hose.ranks)).clip(max=10**6).astype(float)
    np.fill_diagonal(matrix, 0.0)
    for _ in range(50):
        matrix *= np.minimum(1.0, hose.send / np.maximum(matrix.sum(axis=1), 1e-300))[:, None]
        matrix *= np.minimum(1.0, hose.receive / np.maximum(matrix.sum(axis=0), 1e-300))
    return matrix


@settings(max_examples=12, deadline=None, derandomize=True)
@given(machine=topologies(most=6), even=st.booleans(), seed=st.integers(0, 99))
def test_no_matrix_takes_longer_than_is_guaranteed(machine: Topology, even: bool, seed: int) -> None:
    ranks = len(machine.gpus)
    matrix = None if even else np.random.default_rng(seed).zipf(1.5, (ranks, ranks)).clip(max=10**4) * 1000.0
    demand = alltoall(ranks, matrix)
    solved = portfolio.solve(machine, demand, strategies=["oblivious"])
    assert_plan_implements(solved.plan, machine, demand)
    hose = Hose.of(demand)
    told = solved.plan.solver["oblivious"]
    assert told["guaranteed_ratio"] >= 1 - 1e-6
    if told["direct_seconds"] is not None:
        assert told["guaranteed_seconds"] <= told["direct_seconds"] * (1 + 1e-9)
    tried = [inside(hose, seed + n) for n in range(5)] + (permutations(hose, 10, seed) if even else [])
    for traffic in tried:
        assert seconds(solved.plan, machine, traffic) <= told["guaranteed_seconds"] * (1 + 1e-6)


def test_the_guarantee_of_a_direct_exchange_is_its_worst_permutation() -> None:
    machine = catalog.build("hgx-h100x2")
    devices = tuple(machine.gpus[rank] for rank in (0, 1, 2, 8, 9))
    demand = alltoall(5)
    plan = portfolio.solve(machine, demand, ranks=devices, strategies=["direct"]).plan
    hose = Hose.of(demand)
    worst = 0.0
    for image in itertools.permutations(range(5)):
        matrix = np.zeros((5, 5))
        matrix[np.arange(5), image] = hose.send[0]
        np.fill_diagonal(matrix, 0.0)
        worst = max(worst, seconds(plan, machine, matrix))
    assert guarantee(plan, machine, hose).seconds == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(("name", "optimum"), [("ndv2x1", 7 / 300), ("hgx-h100x2", 0.01875)])
def test_routing_and_bound_meet(name: str, optimum: float) -> None:
    """On the DGX-1 mesh relaying makes the worst permutation a third of what shortest routes make it."""
    machine = catalog.build(name)
    demand = alltoall(len(machine.gpus), size=10**9)
    problem = Problem.of(Routes.among(machine), demand, symmetric=True)
    found = best_worst_case(problem, Hose.of(demand))
    assert found.worst_seconds == pytest.approx(optimum, rel=3e-3)
    assert found.bound_seconds == pytest.approx(optimum, rel=3e-3)
    assert found.bound_seconds <= found.worst_seconds * (1 + 1e-9)


def test_thirty_two_ranks_and_their_permutations() -> None:
    machine = catalog.build("dgx2x2")
    demand = alltoall(32, size=256_000_000)
    told = portfolio.solve(machine, demand, strategies=["oblivious"], time_limit=30).plan
    planned = portfolio.solve(machine, demand, strategies=["routed"]).plan
    hose = Hose.of(demand)
    promised = told.solver["oblivious"]["guaranteed_seconds"]
    assert told.solver["oblivious"]["guaranteed_ratio"] < 1.02
    assert promised < 0.7 * guarantee(planned, machine, hose).seconds
    for matrix in permutations(hose, 20):
        assert seconds(told, machine, matrix) <= promised * (1 + 1e-6)


def test_idle_gpus_relay_and_send_nothing_of_their_own() -> None:
    machine = catalog.build("ndv2x1")
    members, idle = machine.gpus[:4], machine.gpus[4:]
    demand = alltoall(4)
    alone = portfolio.solve(machine, demand, ranks=members, strategies=["oblivious"]).plan
    helped = portfolio.solve(machine, demand, ranks=[*members, *idle], strategies=["oblivious"]).plan
    assert_plan_implements(helped, machine, demand)
    promised = helped.solver["oblivious"]["guaranteed_seconds"]
    assert promised < alone.solver["oblivious"]["guaranteed_seconds"]
    for matrix in permutations(Hose.of(demand), 24):
        assert seconds(helped, machine, matrix) <= promised * (1 + 1e-6)


def test_an_uneven_hose_has_an_exact_worst_matrix() -> None:
    hose = Hose(np.array([3.0, 1.0, 2.0]), np.array([1.0, 4.0, 1.0]))
    worst, matrix = hose.worst(np.array([[9.0, 2.0, 1.0], [1.0, 9.0, 0.0], [5.0, 1.0, 9.0]]))
    assert worst == pytest.approx(3 * 2 + 1 * 5 + 1 * 1)  # 0 sends 3 to 1; 2 sends 1 to 0 and 1 to 1
    assert (matrix.sum(axis=1) <= hose.send + 1e-9).all()
    assert (matrix.sum(axis=0) <= hose.receive + 1e-9).all()
    assert not matrix.diagonal().any()


def test_it_is_tried_only_by_name_and_the_command_tells_its_guarantee(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    words = ["solve", "ndv2x1", "--collective", "alltoall", "--bytes", "64MB"]
    assert main([*words, "--json"]) == 0
    assert "oblivious" not in json.loads(capsys.readouterr().out)["candidates"]
    assert main([*words, "--strategy", "oblivious", "--json", "-o", str(file)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["strategy"] == "oblivious"
    assert answer["oblivious"] == plans.load(file).solver["oblivious"]
    assert main([*words, "--strategy", "oblivious"]) == 0
    assert "whatever the byte counts" in capsys.readouterr().out
