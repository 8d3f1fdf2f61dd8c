"""Pipelines filled by a program: its windows, its pricing, and what it makes of a machine."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synth
from solver.backend import LinearProgram, Stopped
from solver.bound import Columns, Problem, generate
from solver.bound.forest import guessed, improved
from solver.bound.pricing import hop_limited_paths
from solver.schedule import timing
from solver.schedule.staged import Windows, staged
from solver.schedule.timed import Timed
from synth import topology
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.topology import Routes, catalog

CAPTURE = Path(__file__).parents[2] / "probe" / "captures" / "v100-sxm2-8gpu.txt"


@given(depth=st.integers(1, 9), segments=st.integers(1, 30))
def test_windows_are_the_rounds_of_a_pipeline(depth: int, segments: int) -> None:
    low, high, times = Windows.of(depth, segments)
    counted = {(a, b): int(n) for a, b, n in zip(low.tolist(), high.tolist(), times.tolist(), strict=True)}
    expected: dict[tuple[int, int], int] = {}
    for round in range(segments + depth - 1):
        moving = [hop for hop in range(depth) if 0 <= round - hop < segments]
        key = (min(moving), max(moving))
        expected[key] = expected.get(key, 0) + 1
    assert counted == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_paths_are_the_cheapest_when_prices_depend_on_the_round(seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = random.random((3, 4, 4))
    weights[:, np.arange(4), np.arange(4)] = 0.0
    root, end = np.array([0, 2]), np.array([3, 1])
    columns, rounds, price = hop_limited_paths(weights, np.arange(2), root, end)
    for row in range(2):
        stays = product(range(4), repeat=2)
        walks = [(int(root[row]), *middle, int(end[row])) for middle in stays]
        least = min(sum(weights[r, a, b] for r, (a, b) in enumerate(pairwise(w))) for w in walks)
        assert price[row] == pytest.approx(least)
        mine = slice(columns.starts[row], columns.starts[row + 1])
        hops, clock = columns.hops[mine], rounds[mine]
        assert (np.diff(clock) > 0).all()
        assert weights[clock, hops // 4, hops % 4].sum() == pytest.approx(least)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_trees_cost_what_their_levels_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    ranks, depth = 7, 3
    weights = random.random((1, depth, ranks, ranks))
    roots = np.array([0, 3, 6])
    start = guessed(weights, roots, depth, 1 - np.eye(ranks, dtype=np.int64))
    parents, level, price = improved(weights, roots, start, depth)
    for row, root in enumerate(roots.tolist()):
        children = [v for v in range(ranks) if v != root]
        assert parents[row, root] == -1
        assert all(level[row, parents[row, v]] < level[row, v] <= depth for v in children)
        assert sum(weights[0, level[row, v] - 1, parents[row, v], v] for v in children) == pytest.approx(price[row])


@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reduce_scatter"])
def test_the_program_knows_what_its_pipeline_costs(collective: str) -> None:
    machine = catalog.build("ndv2x1")
    demand = Demand(collective=Collective(collective), ranks=8, bytes=10**8)
    problem = Problem.of(Routes.among(machine), demand)
    fractional = generate(problem)
    start = timing.earliest(problem, fractional.columns)
    depth, segments = int(start.last.max()) + 2, 24
    found = staged(problem, depth, segments, start, scale=fractional.seconds, wait=1e-6, seed=0, stop=lambda: False)
    assert found is not None
    routes, shares, segments = found
    assert np.bincount(routes.columns.commodity, shares) == pytest.approx(np.ones(len(problem.commodities)))
    assert routes.last.max() < depth

    def seconds(timed: Timed, parts: np.ndarray) -> float:
        columns: Columns = timed.columns
        size = np.repeat(problem.commodities.size[columns.commodity] * parts, np.diff(columns.starts))
        return timing.Pipeline(problem, timed.rounds, columns.hops, size, 0.0).best()[1]

    assert seconds(routes, shares) <= seconds(start, fractional.shares) * (1 + 1e-6)
    assert seconds(routes, shares) >= fractional.bound


def test_a_program_told_to_stop_before_its_first_step_stops() -> None:
    program = LinearProgram(np.array([1.0]), np.array([1.0]))
    program.add(np.array([1.0, 2.0]), np.array([0, 1, 2]), np.array([0, 0]), np.array([1.0, 1.0]))
    assert program.solve().objective == pytest.approx(1.0)
    rows = 200
    large = LinearProgram(np.ones(rows), np.full(rows, np.inf))
    random = np.random.default_rng(0)
    count = 400
    large.add(
        random.random(count), np.arange(count + 1) * rows, np.tile(np.arange(rows), count), random.random(count * rows)
    )
    with pytest.raises(Stopped):
        large.solve(lambda: True)


@pytest.mark.parametrize(("collective", "bytes", "most"), [("alltoall", 1 << 24, 0.12), ("allgather", 1 << 20, 1.7)])
def test_relaying_is_tried_where_some_direct_ways_are_slow(
    collective: str, bytes: int, most: float, tmp_path: Path
) -> None:
    """Prices at the optimum see nothing of slow links that it leaves idle: a plan of one round looks good to them."""
    assert main(["probe", "--smi", str(CAPTURE), "-o", str(tmp_path / "machine.json")]) == 0
    machine = topology.load(tmp_path / "machine.json")
    assert synth.solve(machine, collective, bytes=bytes, launch_ns=9000).gap < most
