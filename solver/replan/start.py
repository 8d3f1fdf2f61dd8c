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

from solver.bound import Columns, Fractional, Problem, Shape, generate
from solver.bound.generation import proven
from solver.bound.shallow import farthest, limited
from solver.replan.survivors import Survivors, survivors
from solver.schedule import assembly, routed
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import ENOUGH as ORDERED
from solver.schedule.ordering import in_good_order
from solver.schedule.staged import staged
from solver.schedule.timed import Timed
from synth.plan import Plan
from synth.simulator import Cost

STEEPNESS = 12.0
"""How much dearer the busiest link is than an idle one, as a power of e."""
WARM_UP = 1
"""Steps of multiplicative weights for trees as deep as the earlier ones."""
STEPS, PATIENCE, ENOUGH = 3, 2, 0.035
"""Programs that fill the pipeline, how soon they end when they gain little, and how near the bound is good enough."""
DEEPER = 2
"""The pipeline becomes so much deeper at most where its depth no longer suits the machine."""
TOO_SHALLOW = 1.1
"""It does not suit where the links need this much longer than with routes of any depth."""
SMALL = 32
"""On machines of at most so many ranks other depths are tried as well."""
FEW = 12
"""With fewer commodities, which is to say with much symmetry, a solve from scratch is as quick and sees more depths."""


def beginning(problem: Problem, plan: Plan | None) -> Survivors | None:
    """What to start from; None where there is no earlier plan, or nothing to gain from it.

    Raises:
        InputError: the plan is for another collective or other ranks.
    """
    if plan is None:
        return None
    found = survivors(problem, plan)
    return found if len(problem.commodities) >= FEW else None


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
    if task.cost is Cost.ROUNDS:
        yield from _pipelines(earlier, task)
    else:
        yield from in_good_order(task, _pipelines(earlier, task), task.fractional.bound * (1 + ORDERED))


def _pipelines(earlier: Survivors, task: Task) -> Iterator[Draft]:
    """The optimal routes, then those that fill a pipeline best that is as deep as the earlier one.

    On a small machine all depths are tried as well, unless that was good already.
    """
    problem, fractional = task.problem, task.fractional
    if not fractional.optimal and not problem.paired:  # there was no time for the linear program
        yield routed.draft_of(problem, _as_before(earlier, fractional), task.launch_ns)
    first = routed.draft_of(problem, fractional, task.launch_ns)
    yield first
    best = first.seconds(task)
    if not len(problem.moving) or best <= fractional.bound * (1 + routed.NEAR):
        return
    depth = max(-(-earlier.depth // 2) if problem.paired else earlier.depth, farthest(problem))
    deepest = depth + DEEPER
    while depth < deepest and _too_shallow(task, depth):
        depth += 1
    for draft in _as_deep(earlier, task, depth):
        best = min(best, draft.seconds(task))
        yield draft
    if best > fractional.bound * (1 + ENOUGH) and problem.routes.ranks <= SMALL and not task.over:
        pool = Columns.join([fractional.pool, earlier.routes.columns])
        yield from routed.pipelines(replace(task, fractional=replace(fractional, pool=pool)))


def _as_before(earlier: Survivors, fractional: Fractional) -> Fractional:
    """The earlier shares of the routes that survived; what lost all of its own takes the routes there are."""
    columns = earlier.routes.columns
    total = np.bincount(
        columns.commodity, earlier.shares, minlength=int(fractional.columns.commodity.max(initial=0)) + 1
    )
    others = np.flatnonzero(total[fractional.columns.commodity] == 0)
    return replace(
        fractional,
        columns=Columns.join([columns, fractional.columns.take(others)]),
        shares=np.concatenate([earlier.shares / total[columns.commodity], fractional.shares[others]]),
    )


def _as_deep(earlier: Survivors, task: Task, depth: int) -> Iterator[Draft]:
    """Good routes of at most so many hops, then those that fill a pipeline of so many rounds best."""
    problem, fractional = task.problem, task.fractional
    pool, good = Columns.join([earlier.routes.columns, fractional.columns]), fractional.columns
    if (problem.commodities.shape != Shape.PATH).any():  # what survived may use links that are dear now
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
        yield routed.draft_of(problem, shallow, task.launch_ns)
    filled = staged(
        problem,
        depth * (2 if problem.paired else 1),
        earlier.segments,
        _starting(earlier, task, pool, good, depth),
        scale=fractional.seconds,
        wait=(problem.routes.latency_ns.ravel()[fractional.columns.hops].max() + task.launch_ns) * 1e-9,
        seed=task.seed,
        stop=lambda: task.over,
        steps=STEPS,
        patience=PATIENCE,
        enough=ENOUGH,
    )
    if filled is not None:
        routes, shares, segments = filled
        prices = fractional.prices
        yield assembly.draft_of(problem, routes, shares, prices=prices, launch_ns=task.launch_ns, segments=segments)


def _too_shallow(task: Task, depth: int) -> bool:
    """Whether the prices of the optimum see that routes of so many hops need much more time."""
    problem, fractional = task.problem, task.fractional
    columns, costs = limited(depth, seed=task.seed)(problem, fractional.prices)
    least = np.full(len(problem.commodities), np.inf)
    np.minimum.at(least, columns.commodity, costs)
    needed = proven(problem, least[problem.moving], fractional.prices)
    return needed > TOO_SHALLOW * fractional.seconds


def _starting(earlier: Survivors, task: Task, pool: Columns, good: Columns, depth: int) -> Timed:
    """The earlier routes in their rounds, good ones, and the most promising of all others, that fit into the rounds."""
    problem = task.problem
    found = routed.starting(problem, replace(task.fractional, columns=good, pool=pool), depth)
    if problem.paired:  # where the out-trees begin depends on the depth
        return found
    return Timed.join([earlier.routes.take(np.flatnonzero(earlier.routes.last < depth)), found])
