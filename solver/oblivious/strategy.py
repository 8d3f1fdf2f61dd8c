"""The oblivious strategy: the routing with the best worst case as a plan, or the direct exchange where that is as good.

The worst case is taken over all matrices with at most the row and column sums of the demand; for a uniform demand,
over everything in which no rank sends or receives more than the others' blocks together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solver.bound import Columns, Problem
from solver.oblivious.guarantee import MOST_RANKS, guarantee, least_for_hardest
from solver.oblivious.hose import Hose
from solver.oblivious.routing import Oblivious, best_worst_case
from solver.oblivious.table import Table
from solver.schedule import direct
from solver.schedule.assembly import pipeline
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.rounding import Whole, largest_remainder
from synth.collective import Collective

DENOMINATORS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 15, 16, 24, 31, 32, 48, 64, 96, 128)
WORTH = 5e-3
"""A larger denominator is taken where it lowers the worst case by more than this."""
CLOSE = 0.01
"""A guarantee this close to what is proven needs no harder matrix."""
PART = 0.7
"""Part of the time left that the routing may use."""


def drafts(task: Task) -> Iterator[Draft]:
    """The one with the best guarantee."""
    given = task.problem
    problem = given if given.group is None or given.listed is not None else given.plain
    topology, demand = problem.routes.topology, problem.demand
    hose = Hose.of(demand)
    padded = hose.padded(problem.routes.ranks)
    now = time.monotonic()
    known = least_for_hardest(problem.routes, hose, hose.middle()[None], deadline=task.deadline)
    found = best_worst_case(
        problem,
        padded,
        start=_direct(problem),
        known_bound=known,
        deadline=now + PART * max(task.deadline - now, 0.0),
        seed=task.seed,
        cancel=task.cancel,
        progress=task.progress,
    )
    candidates = [pipeline(problem, _whole(problem, padded, found), task.launch_ns)]
    if direct.STRATEGY.serves(problem):
        candidates += direct.drafts(replace(task, problem=problem))
    guaranteed = [guarantee(draft.plan(problem), topology, hose, launch_ns=task.launch_ns) for draft in candidates]
    best = min(range(len(candidates)), key=lambda number: guaranteed[number].seconds)
    least = found.bound_seconds
    if guaranteed[best].seconds > least * (1 + CLOSE):
        least = max(least, least_for_hardest(problem.routes, hose, guaranteed[best].matrices, deadline=task.deadline))
    note = {
        "guaranteed_seconds": guaranteed[best].seconds,
        "direct_seconds": guaranteed[1].seconds if len(guaranteed) > 1 else None,
        "least_seconds": least,
        "guaranteed_ratio": guaranteed[best].seconds / least if least > 0 else None,
    }
    rounded = {name: None if value is None else float(f"{value:.9g}") for name, value in note.items()}
    yield replace(candidates[best], notes={"oblivious": rounded})


def _direct(problem: Problem) -> Columns:
    """The pairs' direct routes, where there are any."""
    root, end = problem.commodities.root, problem.commodities.end
    exists = np.flatnonzero(problem.routes.exists[root, end])
    return Columns(exists, np.arange(len(exists) + 1), (root * problem.routes.ranks + end)[exists])


def _whole(problem: Problem, hose: Hose, found: Oblivious) -> Whole:
    """Whole shares whose worst case is hardly worse."""
    table = Table(problem)
    weights = table.weights(found.columns)
    best: tuple[float, int, np.ndarray] | None = None
    for denominator in DENOMINATORS:
        units = largest_remainder(found.shares, found.columns.commodity, denominator)
        seconds, _ = hose.worst_of(table.spread(weights, units / denominator))
        if best is None or seconds < best[0] * (1 - WORTH):
            best = (seconds, denominator, units)
        if best[0] <= found.worst_seconds * (1 + WORTH):
            break
    assert best is not None
    _, denominator, units = best
    used = np.flatnonzero(units)
    return Whole(columns=found.columns.take(used), shares=units[used], denominator=denominator, kept=used)


STRATEGY = Strategy(
    name="oblivious",
    collectives=frozenset({Collective.ALLTOALL}),
    needs_all_pairs=False,
    drafts=drafts,
    fits=lambda problem: problem.routes.ranks <= MOST_RANKS,
    by_name=True,
)
