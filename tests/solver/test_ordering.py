"""Orders for the timeline model: what is played is legal, and the official simulator says the same of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from solver import portfolio
from solver.backend import Stopped
from solver.bound import Problem
from solver.schedule import playing
from solver.schedule.ordering import Pieces, Played
from synth.collective import Collective, Demand
from synth.plan import Plan
from synth.simulator import simulate
from synth.topology import Routes, Topology, catalog
from tests import plans

MACHINE = catalog.build("hgx-h100x1")
KINDS = (Pieces.in_gaps, Pieces.by_round, Pieces.by_way)
PLANS = (
    plans.direct_alltoall(MACHINE),
    plans.chain(MACHINE, Collective.BROADCAST, segments=1),
    plans.chain(MACHINE, Collective.REDUCE, segments=1),
    plans.chain(MACHINE, Collective.ALLREDUCE, segments=1),
)
COUNT = 4


def cut(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> tuple[Problem, Pieces]:
    problem = Problem.of(Routes.among(MACHINE), plans.demand(plan, 8_000_000))
    return problem, Pieces(problem, plan, np.arange(len(plan.transfers)), COUNT, stop=stop)


def assert_no_link_is_taken_twice(problem: Problem, played: Played) -> None:
    columns, routes = played.pieces.columns, problem.routes
    pair = columns["src"] * routes.ranks + columns["dst"]
    size = played.pieces.bytes
    spans: dict[int, list[tuple[float, float]]] = {}
    for row, start, bytes in zip(pair.tolist(), played.starts.tolist(), size.tolist(), strict=True):
        for link in routes.links[routes.starts[row] : routes.starts[row + 1]].tolist():
            busy = bytes / routes.topology.bytes_per_s[link] * 1e9
            spans.setdefault(link, []).append((start, start + busy))
    assert spans
    for taken in spans.values():
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(sorted(taken)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.collective.value)
def test_what_is_played_is_legal_and_justifying_does_no_harm(plan: Plan, kind: Callable[[Pieces], Played]) -> None:
    problem, pieces = cut(plan)
    played = kind(pieces)
    justified = played.justified()
    for each in (played, justified):
        assert_no_link_is_taken_twice(problem, each)
        made = each.draft().plan(problem)
        official = simulate(made, MACHINE, problem.demand, cost="timeline")
        assert official.seconds == pytest.approx(each.seconds, rel=1e-6)
    assert justified.seconds <= played.seconds * (1 + 1e-6)


def test_a_transfer_fits_into_a_gap_of_its_length_and_no_shorter_one() -> None:
    link = playing.Link(10.0)
    link.take(0.0, 10.0)
    link.take(20.0, 10.0)
    assert link.first_gap(0.0, 10.0) == 10.0
    assert link.first_gap(0.0, 11.0) == 30.0
    link.take(10.0, 10.0)
    assert link.first_gap(0.0, 10.0) == 30.0
    link.take(35.0, 10.0)  # nothing as short as 5 comes over this link
    assert link.first_gap(0.0, 10.0) == 45.0


@pytest.mark.parametrize("kind", KINDS)
def test_playing_ends_when_time_is_up(kind: Callable[[Pieces], Played], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "BREATH", 2)
    _, pieces = cut(PLANS[0], stop=lambda: True)
    with pytest.raises(Stopped):
        kind(pieces)


@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reduce_scatter"])
def test_orders_of_two_nodes_leave_hardly_a_link_idle(collective: str) -> None:
    machine: Topology = catalog.build("mi250x2")
    demand = Demand(collective=Collective(collective), ranks=32, bytes=10**9)
    if collective != "alltoall":
        machine, demand = catalog.build("ndv2x1"), Demand(collective=Collective(collective), ranks=8, bytes=10**9)
    solved = portfolio.solve(machine, demand, cost="timeline")
    assert solved.gap < 0.01
    official = simulate(solved.plan, machine, demand, cost="timeline")
    assert official.seconds == pytest.approx(solved.predicted_seconds, rel=1e-12)
