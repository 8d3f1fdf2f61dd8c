"""Solves that start from an earlier plan, after a link died or slowed down."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from solver import portfolio
from solver.bound import Problem
from solver.replan import survivors
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.errors import InputError
from synth.testing import assert_plan_implements
from synth.topology import Routes, Topology, catalog
from synth.topology import codec as topologies
from synth.topology.degrade import degrade

SPREADING = [Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLREDUCE]

ROOTED = [Collective.BROADCAST, Collective.REDUCE]


def asked(machine: Topology, collective: Collective) -> Demand:
    root = 3 if collective.rooted else None
    return Demand(collective=collective, ranks=len(machine.gpus), bytes=10**9, root=root)


@pytest.mark.parametrize(
    ("name", "link", "factor", "collective"),
    [
        *(("ndv2x1", ("n0/gpu0", "n0/gpu3"), 0.0, collective) for collective in [*SPREADING, *ROOTED]),
        *(("hgx-h100x2", ("n0/nic0", "fabric"), 0.0, collective) for collective in SPREADING),
        ("mesh5x5", ("n0/gpu12", "n0/gpu13"), 0.5, Collective.ALLGATHER),
        ("hgx-h100x4", ("n0/nic0", "fabric"), 0.5, Collective.ALLTOALL),
    ],
)
def test_a_plan_started_from_another_is_as_good(
    name: str, link: tuple[str, str], factor: float, collective: Collective
) -> None:
    whole = catalog.build(name)
    machine, demand = degrade(whole, {link: factor}), asked(whole, collective)
    earlier = portfolio.solve(whole, demand).plan
    scratch, warm = portfolio.solve(machine, demand), portfolio.solve(machine, demand, start=earlier)
    assert_plan_implements(warm.plan, machine, demand)
    assert warm.bound.seconds == pytest.approx(scratch.bound.seconds, rel=1e-3)
    assert warm.gap <= scratch.gap + 0.04
    assert portfolio.solve(machine, demand, start=earlier).plan.text == warm.plan.text


@pytest.mark.parametrize("collective", SPREADING)
def test_all_routes_of_a_plan_survive_where_nothing_changed(collective: Collective) -> None:
    machine = catalog.build("ndv2x2")
    demand = asked(machine, collective)
    plan = portfolio.solve(machine, demand).plan
    problem = Problem.of(Routes.among(machine), demand)
    found = survivors(problem, plan)
    assert found.lost == 0
    total = np.bincount(found.routes.columns.commodity, found.shares, minlength=len(problem.commodities))
    expected = 1.0 if collective is not Collective.ALLREDUCE else None
    if expected:
        assert total == pytest.approx(expected)
    else:
        half = len(total) // 2
        assert total[:half].sum() == pytest.approx(1.0)
        assert total[:half] == pytest.approx(total[half:])


def test_trees_are_mended_and_paths_left_out_where_a_link_is_gone() -> None:
    whole = catalog.build("mesh5x5")
    machine = degrade(whole, {("n0/gpu12", "n0/gpu13"): 0.0})
    for collective in (Collective.ALLGATHER, Collective.ALLTOALL):
        demand = asked(whole, collective)
        plan = portfolio.solve(whole, demand).plan
        problem = Problem.of(Routes.among(machine), demand)
        found = survivors(problem, plan)
        assert found.lost > 0
        assert problem.routes.exists.ravel()[found.routes.columns.hops].all()
        mended = len(found.routes.columns) > len(plan.chunks) - found.lost
        assert mended == (collective is Collective.ALLGATHER)


@pytest.mark.parametrize("collective", [Collective.ALLTOALL, Collective.ALLGATHER])
def test_without_time_the_earlier_shares_are_kept(collective: Collective) -> None:
    whole = catalog.build("mesh5x5")
    demand = asked(whole, collective)
    earlier = portfolio.solve(whole, demand)
    machine = degrade(whole, {("n0/gpu0", "n0/gpu1"): 0.9})
    hasty = portfolio.solve(machine, demand, start=earlier.plan, cancel=lambda: True)
    assert_plan_implements(hasty.plan, machine, demand)
    assert hasty.predicted_seconds < 1.3 * earlier.predicted_seconds


def test_ranks_may_be_listed_in_another_order() -> None:
    machine = catalog.build("ndv2x1")
    demand = asked(machine, Collective.ALLGATHER)
    plan = portfolio.solve(machine, demand).plan
    turned = machine.gpus[::-1]
    warm = portfolio.solve(machine, demand, ranks=turned, start=plan)
    assert warm.plan.ranks == turned
    assert_plan_implements(warm.plan, machine, demand)


def test_other_plans_are_refused() -> None:
    machine = catalog.build("ndv2x1")
    plan = portfolio.solve(machine, asked(machine, Collective.ALLGATHER)).plan
    with pytest.raises(InputError, match="must be for alltoall"):
        portfolio.solve(machine, asked(machine, Collective.ALLTOALL), start=plan)
    few = replace(asked(machine, Collective.ALLGATHER), ranks=4)
    with pytest.raises(InputError, match="the same GPUs"):
        portfolio.solve(machine, few, ranks=machine.gpus[:4], start=plan)
    broadcast = portfolio.solve(machine, asked(machine, Collective.BROADCAST)).plan
    with pytest.raises(InputError, match="its root is n0/gpu3"):
        portfolio.solve(machine, replace(asked(machine, Collective.BROADCAST), root=1), start=broadcast)


def test_the_command_starts_from_a_plan_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = catalog.build("ndv2x1")
    topologies.save(degrade(whole, {("n0/gpu0", "n0/gpu3"): 0.5}), tmp_path / "now.json")
    plan = portfolio.solve(whole, asked(whole, Collective.ALLTOALL)).plan
    plans.save(plan, tmp_path / "before.json")
    words = ["solve", str(tmp_path / "now.json"), "--collective", "alltoall", "--json"]
    assert main([*words, "--from", str(tmp_path / "before.json")]) == 0
    assert json.loads(capsys.readouterr().out)["started_from"] == plan.digest
    assert main([*words, "--from", str(tmp_path / "before.json"), "--range", "1KB:1MB"]) == 2
    assert "--from" in capsys.readouterr().err
