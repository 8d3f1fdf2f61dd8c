"""Several collectives at the same time on shared links."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from solver.bound import Problem, generate
from solver.joint import Ask, solve_together
from solver.joint.program import share
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.errors import DemandError
from synth.plan.sizes import demand_of
from synth.simulator import simulate
from synth.simulator.together import simulate_together
from synth.testing import assert_plan_implements
from synth.topology import Routes, Topology, catalog
from synth.verifier.certificate import proven_together_ns


def ask(machine: Topology, collective: str, positions: slice, size: int = 10**9) -> Ask:
    ranks = machine.gpus[positions]
    return Ask(ranks=ranks, demand=Demand(collective=Collective(collective), ranks=len(ranks), bytes=size))


def test_groups_that_share_links_are_planned_around_each_other() -> None:
    machine = catalog.build("ndv2x1")
    asks = [ask(machine, "alltoall", slice(None)), ask(machine, "allreduce", slice(None))]
    joint = solve_together(machine, asks)
    assert joint.separate_seconds > 1.1 * joint.seconds
    assert joint.gap < 0.10
    for plan, one in zip(joint.plans, asks, strict=True):
        assert_plan_implements(plan, machine, one.demand)
        assert plan.ranks == one.ranks


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ndv2x1", [("alltoall", slice(None)), ("allreduce", slice(None))]),
        ("hgx-h100x2", [("alltoall", slice(0, 8)), ("alltoall", slice(8, 16)), ("allgather", slice(None))]),
        ("mesh5x5", [("reduce_scatter", slice(0, 15)), ("allgather", slice(10, 25))]),
    ],
)
def test_together_is_never_worse_than_apart_and_never_below_the_bound(
    name: str, parts: list[tuple[str, slice]]
) -> None:
    machine = catalog.build(name)
    asks = [ask(machine, *part) for part in parts]
    joint = solve_together(machine, asks)
    demands = [one.demand for one in asks]
    assert joint.seconds == pytest.approx(simulate_together(joint.plans, machine, demands))
    assert joint.separate_seconds == pytest.approx(
        simulate_together([solved.plan for solved in joint.alone], machine, demands)
    )
    longest = max(solved.predicted_seconds for solved in joint.alone)
    assert longest <= joint.separate_seconds * (1 + 1e-9)
    assert joint.bound_seconds <= joint.seconds <= joint.separate_seconds
    proven = proven_together_ns(joint.certificate, [(Routes.among(machine, one.ranks), one.demand) for one in asks])
    assert joint.certificate.bound_ns <= proven
    for plan, one in zip(joint.plans, asks, strict=True):
        assert_plan_implements(plan, machine, one.demand)
    assert [plan.digest for plan in solve_together(machine, asks).plans] == [plan.digest for plan in joint.plans]


def test_one_demand_alone_has_the_optimum_it_has_anyway() -> None:
    machine = catalog.build("asym8")
    for collective in ("alltoall", "allgather", "allreduce"):
        one = ask(machine, collective, slice(None))
        problem = Problem.of(Routes.among(machine), one.demand)
        shared, alone = share([problem]), generate(problem)
        assert shared.seconds == pytest.approx(alone.seconds, rel=3e-4)
        assert shared.bound == pytest.approx(alone.bound, rel=3e-4)


def test_two_equal_demands_take_twice_as_long() -> None:
    machine = catalog.build("ndv2x1")
    problem = Problem.of(Routes.among(machine), ask(machine, "allgather", slice(None)).demand)
    assert share([problem, problem]).seconds == pytest.approx(2 * generate(problem).seconds, rel=5e-4)


def test_loads_of_plans_that_run_together_add_up() -> None:
    machine = catalog.build("hgx-h100x1")
    one = ask(machine, "alltoall", slice(None))
    plan = solve_together(machine, [one, one]).alone[0].plan
    alone = simulate(plan, machine, one.demand, launch_ns=9000.0).seconds
    assert simulate_together([plan], machine, [one.demand], launch_ns=9000.0) == pytest.approx(alone)
    loads = simulate(plan, machine, one.demand).link_seconds.max()
    twice = simulate_together([plan, plan], machine, [one.demand] * 2, launch_ns=9000.0)
    assert twice == pytest.approx(alone + loads)
    assert simulate_together([], machine, []) == 0.0


def test_one_group_is_refused() -> None:
    machine = catalog.build("hgx-h100x1")
    with pytest.raises(DemandError, match="at least 2"):
        solve_together(machine, [ask(machine, "alltoall", slice(None))])


def test_the_command_plans_the_groups_that_synth_groups_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "ndv2x1", "--ep-size", "4", "--json"]) == 0
    (tmp_path / "groups.json").write_text(capsys.readouterr().out)
    words = ["solve", "ndv2x1", "--groups", str(tmp_path / "groups.json"), "--collective", "alltoall", "--json"]
    out = tmp_path / "plan.json"
    assert main([*words, "--bytes", "64MB", "--group", "allreduce:1GB:0-7", "-o", str(out)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [group["collective"] for group in answer["groups"]] == ["alltoall", "alltoall", "allreduce"]
    made = [plans.load(group["plan_file"]) for group in answer["groups"]]
    assert [plan.digest for plan in made] == [group["digest"] for group in answer["groups"]]
    demands = [demand_of(plan) for plan in made]
    assert simulate_together(made, catalog.build("ndv2x1"), demands) == pytest.approx(answer["together_seconds"])
    assert np.array(answer["certificate"]["lengths"]).max() == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "alltoall:0-7"], "write COLLECTIVE:BYTES:RANKS"),
        (["--group", "alltoall:1GB:0-7"], "at least 2"),
        (["--group", "alltoall:1GB:0-7", "--collective", "alltoall"], "leave it out"),
        (["--group", "alltoall:1GB:0-7", "--range", "1KB:1MB"], "does not go with"),
        (["--group", "alltoall:1GB:0-99"], "no GPU"),
        (["--groups", "missing.json", "--collective", "alltoall"], "cannot be read"),
        ([], "--collective: is missing"),
    ],
)
def test_what_does_not_fit_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "hgx-h100x1", *words]) == 2
    assert message in capsys.readouterr().err
