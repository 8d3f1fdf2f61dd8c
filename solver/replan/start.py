"""A solve that starts from an earlier plan: its routes re-priced, few new ones beside them, one depth.

From scratch most of the time goes into finding good routes and the depth that suits a pipeline. After a small change
of the machine the earlier plan knows both: its surviving routes are the first columns, prices begin where they make
those links dear that they load, and the pipeline stays as deep as it was, with the rounds that its routes had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from solver.bound import Columns, Problem, Shape, generate
from solver.bound.shallow import farthest, limited
from solver.replan.survivors import Survivors
from solver.schedule import assembly, routed
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import ordered
from solver.schedule.staged import staged
from solver.schedule.timed import Timed
from synth.simulator import Cost

STEEPNESS = 12.0
"""How much dearer the busiest link is than an idle one, as a power of e."""
WARM_UP = 1
"""Steps of multiplicative weights for trees as deep as the earlier ones."""
STEPS, PATIENCE, ENOUGH = 3, 2, 0.03
"""Programs that fill the pipeline, how soon they end when they gain little, and how near to the bound is good enough;
from scratch it takes more of them."""
DEEPER = 2
"""The pipeline becomes so much deeper at most where its depth no longer suits the machine."""
TOO_SHALLOW = 1.02
"""It does not suit where the plan takes this much longer than the routes of any depth."""


def prices_of(problem: Problem, earlier: Survivors) -> np.ndarray:
    """[rows] prices that sum to 1 and make the links dear that the earlier routes keep busy longest."""
    load = np.asarray(earlier.routes.columns.usage(problem).T @ earlier.shares).ravel()
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
    """The optimal routes, then those that fill a pipeline as deep as the earlier one best."""
    problem, fractional = task.problem, task.fractional
    first = routed.draft_of(problem, fractional, task.launch_ns)
    yield first
    fastest = first.seconds(task)
    if not len(problem.moving) or fastest <= fractional.bound * (1 + routed.NEAR):
        return
    halves = 2 if problem.paired else 1
    wait = (problem.routes.latency_ns.ravel()[fractional.columns.hops].max() + task.launch_ns) * 1e-9
    least = max(-(-earlier.depth // halves), farthest(problem))
    pool = Columns.join([earlier.routes.columns, fractional.columns])
    good = fractional.columns
    paths = bool((problem.commodities.shape == Shape.PATH).all())
    for depth in range(least, least + DEEPER + 1):
        if not paths:  # what survived may use links that are dear now
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
            pool, good = Columns.join([pool, shallow.pool]), shallow.columns
            draft = routed.draft_of(problem, shallow, task.launch_ns)
            yield draft
            fastest = min(fastest, draft.seconds(task))
            if depth < least + DEEPER and shallow.seconds > fastest:
                continue
        if task.over:
            return
        filled = staged(
            problem,
            depth * halves,
            earlier.segments,
            _starting(earlier, task, pool, good, depth),
            scale=fractional.seconds,
            wait=wait,
            seed=task.seed,
            stop=lambda: task.over,
            steps=STEPS,
            patience=PATIENCE,
            enough=ENOUGH,
        )
        if filled is None:
            return
        routes, shares, segments = filled
        draft = assembly.draft_of(
            problem, routes, shares, prices=fractional.prices, launch_ns=task.launch_ns, segments=segments
        )
        yield draft
        if draft.seconds(task) < fastest * TOO_SHALLOW:
            return


def _starting(earlier: Survivors, task: Task, pool: Columns, good: Columns, depth: int) -> Timed:
    """The earlier routes in their rounds, good ones, and the most promising of all others, that fit into the rounds."""
    problem = task.problem
    found = routed.starting(problem, replace(task.fractional, columns=good, pool=pool), depth)
    if problem.paired:  # where the out-trees begin depends on the depth
        return found
    return Timed.join([earlier.routes.take(np.flatnonzero(earlier.routes.last < depth)), found])
