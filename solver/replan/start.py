"""A solve that starts from an earlier plan: its routes re-priced, few new ones beside them, one depth, one polish.

From scratch most of the time goes into finding good routes and the depth that suits a pipeline. After a small change
of the machine the earlier plan knows both: its surviving routes are the first columns, prices begin where they make
those links dear that they load, and only routes as deep as the earlier ones are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from solver.bound import Columns, Problem, generate
from solver.bound.shallow import limited
from solver.replan.survivors import Survivors
from solver.schedule import routed
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import ordered
from solver.schedule.polish import polish
from synth.simulator import Cost

STEEPNESS = 12.0
"""How much dearer the busiest link is than an idle one, as a power of e."""
WARM_UP = 2
"""Steps of multiplicative weights for routes of limited depth; from scratch it takes more."""
TOO_SHALLOW = 1.2
"""Routes one hop deeper are tried where a depth costs more than this times the optimum."""
POLISHED = 400
"""So many columns are polished together."""
LARGE = 1000
"""With more commodities the polish is not worth its time here."""
ENOUGH = 1e-3
"""A plan this close to the bound is not improved further."""


def prices_of(problem: Problem, earlier: Survivors) -> np.ndarray:
    """[rows] prices that sum to 1 and make the links dear that the earlier routes keep busy longest."""
    load = np.asarray(earlier.columns.usage(problem).T @ earlier.shares).ravel()
    rows = np.ones(len(load)) if problem.group is None else np.bincount(problem.group.link_orbit).astype(float)
    prices = rows * np.exp(STEEPNESS * (load / max(load.max(initial=0.0), 1e-300) - 1.0))
    return np.asarray(prices / prices.sum())


def started_from(earlier: Survivors, strategies: Sequence[Strategy]) -> tuple[Strategy, ...]:
    """The strategies, of which the routed one starts from an earlier plan."""
    warm = replace(routed.STRATEGY, drafts=partial(_drafts, earlier))
    return tuple(warm if strategy is routed.STRATEGY else strategy for strategy in strategies)


def _drafts(earlier: Survivors, task: Task) -> Iterator[Draft]:
    for draft in _pipelines(earlier, task):
        yield draft
        if task.cost is Cost.TIMELINE:
            yield from ordered(task, draft)


def _pipelines(earlier: Survivors, task: Task) -> Iterator[Draft]:
    """The optimal routes, optimal ones as deep as the earlier plan's, and a polish of those and some a hop deeper."""
    problem, fractional = task.problem, task.fractional
    first = routed.draft_of(problem, fractional, task.launch_ns)
    yield first
    best, fastest = (fractional, first.segments), first.seconds(task)
    if fastest <= fractional.bound * (1 + ENOUGH):
        return
    pool, depth = Columns.join([earlier.columns, fractional.pool]), earlier.depth
    while depth < routed.depth_of(first) and not task.over:
        shallow = generate(
            problem,
            deadline=task.deadline,
            tolerance=routed.TOLERANCE,
            seed=task.seed,
            pricer=limited(depth, seed=task.seed),
            start=routed.no_deeper(problem, pool, depth),
            warm_up=WARM_UP,
            known_bound=fractional.bound,
            known_prices=fractional.prices,
            cancel=task.cancel,
        )
        pool = Columns.join([pool, shallow.pool])
        draft = routed.draft_of(problem, shallow, task.launch_ns)
        yield draft
        if draft.seconds(task) < fastest:
            best = shallow, draft.segments
        if shallow.seconds <= TOO_SHALLOW * fractional.seconds:
            break
        depth += 1
    candidates = routed.no_deeper(problem, pool, depth + 1)
    moving = len(problem.moving)
    if task.over or moving > LARGE or len(np.unique(candidates.commodity)) < moving:
        return
    used = routed.no_deeper(problem, best[0].columns, depth + 1)
    columns = routed.most_promising(problem, replace(best[0], pool=candidates, columns=used), POLISHED)
    found = polish(problem, columns, best[1], seed=task.seed, stop=lambda: task.over)
    if found is not None:
        polished = replace(best[0], columns=found.columns, shares=found.shares)
        yield routed.draft_of(problem, polished, task.launch_ns, delay=found.delay)
