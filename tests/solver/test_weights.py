"""Shares without a linear program: what a plan is made of where there is no time for one."""

from __future__ import annotations

import numpy as np
import pytest

import synth
from solver import portfolio
from solver.bound import Problem, generate
from solver.bound.weights import balanced
from synth.collective import Collective, Demand
from synth.topology import Routes, catalog


@pytest.mark.parametrize("name", ["asym8", "mi250x1", "mesh5x5"])
@pytest.mark.parametrize("collective", [Collective.ALLTOALL, Collective.ALLGATHER, Collective.ALLREDUCE])
def test_balanced_shares_are_whole_and_near_the_best_of_the_same_columns(name: str, collective: Collective) -> None:
    machine = catalog.build(name)
    demand = Demand(collective=collective, ranks=len(machine.gpus), bytes=10**9)
    problem = Problem.of(Routes.among(machine), demand, symmetric=False)
    found = generate(problem)
    columns = found.columns
    shares = balanced([problem], [columns])[0]
    whole = np.bincount(columns.commodity, weights=shares)
    if problem.paired:
        half = len(whole) // 2
        np.testing.assert_allclose(whole[:half], whole[half:], atol=1e-9)  # what a root adds up it also sends out
        assert whole.sum() == pytest.approx(2.0)
    else:
        np.testing.assert_allclose(whole, 1.0)
    assert (shares >= 0).all()
    busiest = [float((columns.usage(problem).T @ each).max()) for each in (shares, found.shares)]
    assert busiest[0] <= 1.1 * busiest[1]


def test_a_limit_too_short_for_any_program_still_gives_a_plan_near_the_bound() -> None:
    machine = catalog.build("mesh5x5")
    demand = Demand(collective=Collective.ALLTOALL, ranks=25, bytes=10**9)
    solved = portfolio.solve(machine, demand, time_limit=0.001)
    assert not synth.verify(solved.plan, machine)
    assert solved.predicted_seconds <= 1.8 * generate(Problem.of(Routes.among(machine), demand)).bound
