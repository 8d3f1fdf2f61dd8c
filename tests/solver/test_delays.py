"""Paths that start later, so that links are as busy in every round of a segment."""

from __future__ import annotations

import numpy as np
import pytest

import synth
from solver.bound import Problem, generate
from solver.schedule import timing
from solver.schedule.delays import delayed
from synth.collective import Collective, Demand
from synth.topology import Routes, catalog


@pytest.mark.parametrize("name", ["mesh5x5", "mi250x2", "torus3x3x3", "ndv2x1"])
def test_delayed_paths_fill_a_pipeline_better_than_paths_that_all_start_at_once(name: str) -> None:
    machine = catalog.build(name)
    demand = Demand(collective=Collective.ALLTOALL, ranks=len(machine.gpus), bytes=10**9)
    problem = Problem.of(Routes.among(machine), demand, symmetric=False)
    found = generate(problem)
    columns, early = found.columns, timing.earliest(problem, found.columns)
    late = delayed(problem, columns, found.shares)
    delay = late.rounds - early.rounds
    assert (delay >= 0).all()
    assert (delay == delay[np.repeat(columns.starts[:-1], np.diff(columns.starts))]).all()
    assert late.last.max() == early.last.max()
    sent = np.repeat(problem.commodities.size[columns.commodity] * found.shares, np.diff(columns.starts))
    seconds = [
        timing.Pipeline(problem, routes.rounds, columns.hops, sent, 0.0).best()[1] / found.bound
        for routes in (early, late)
    ]
    assert seconds[1] <= seconds[0]
    assert seconds[1] < 1.02


def test_a_skewed_alltoall_of_a_large_mesh_is_near_its_bound() -> None:
    """Its program of rounds would be too large; with all paths started at once it is 2.5 % over the bound."""
    machine = catalog.build("mesh8x5h")
    popularity = np.arange(1, 41, dtype=np.float64) ** -0.5
    matrix = np.floor(np.outer(np.ones(40), np.roll(popularity, 13)) * 1e9 / popularity.sum())
    np.fill_diagonal(matrix, 0.0)
    solved = synth.solve(machine, "alltoall", bytes=int(matrix.sum(axis=1).max()), demand=matrix)
    assert solved.gap < 0.02
