"""The routed strategy: the optimal fractional routes, rounded to whole shares, as a pipeline of rounds."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from solver.bound import Columns, Fractional, Problem, Shape, generate
from solver.bound.shallow import limited, onward
from solver.schedule import assembly, timing
from solver.schedule.delays import delayed
from solver.schedule.depths import Depths
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import ENOUGH, in_good_order
from solver.schedule.staged import staged
from solver.schedule.timed import Timed
from synth.collective import Collective
from synth.simulator import Cost

TOLERANCE = 8e-3
"""How close to the best the links are used when depths are compared."""
WARM_UP = 2
"""Steps of multiplicative weights before that."""
PATIENCE = 2
"""Steps that may bring little before that ends."""
NEAR = 1e-3
"""A plan this near to the bound is not improved."""
CLOSE = 1.5e-2
"""Nor is one this near whose improvement would take seconds."""
SLOW = 10_000
"""It would where links, or orbits of them, times the square of the rounds are more than this."""
STARTING = 600
"""The program that fills a pipeline begins with so many routes, the most promising."""


def drafts(task: Task) -> Iterator[Draft]:
    """Pipelines of rounds; for the timeline model also in a better order."""
    if task.cost is Cost.ROUNDS:
        yield from pipelines(task)
    else:
        near = ENOUGH if _all_paths(task.problem) else CLOSE
        yield from in_good_order(task, pipelines(task), task.fractional.bound * (1 + near))


def pipelines(task: Task) -> Iterator[Draft]:
    """The optimal routes, then good ones of the depths that look best, filled well."""
    problem, fractional = task.problem, task.fractional
    gap, rounds = yield from _of_optimum(task)
    if not len(problem.moving) or gap <= NEAR:
        return
    wait = (problem.routes.latency_ns.ravel()[fractional.columns.hops].max() + task.launch_ns) * 1e-9
    deepest = -(-rounds // 2) if problem.paired else rounds
    depths = Depths(problem, fractional, deepest, wait=wait, seed=task.seed, stop=lambda: task.over)
    yield from _paths(task, depths, gap) if _all_paths(problem) else _trees(task, depths)


def _of_optimum(task: Task) -> Generator[Draft, None, tuple[float, int]]:
    """Pipelines of the optimal routes: every hop as early as it can be; paths delayed too. Returns (gap, rounds)."""
    problem, fractional = task.problem, task.fractional
    first = draft_of(problem, fractional, task.launch_ns)
    yield first
    gap = first.seconds(task) / fractional.bound - 1 if fractional.bound else 0.0
    if gap > NEAR and _all_paths(problem):
        routes = delayed(problem, fractional.columns, fractional.shares)
        draft = assembly.draft_of(
            problem,
            routes,
            fractional.shares,
            prices=fractional.prices,
            launch_ns=task.launch_ns,
            segments=first.segments,
        )
        yield draft
        gap = min(gap, draft.seconds(task) / fractional.bound - 1)
    return gap, depth_of(first)


def _all_paths(problem: Problem) -> bool:
    return bool((problem.commodities.shape == Shape.PATH).all())


def _paths(task: Task, depths: Depths, gap: float) -> Iterator[Draft]:
    """Paths of the depth that looks best, filled well; then of others as long as that promises and keeps its word."""
    problem = task.problem
    best = float("inf")
    while (depth := depths.best()) is not None and depths.guess(depth)[0] < best:
        if gap <= CLOSE and problem.crossing.shape[1] * depth**2 > SLOW:
            return
        seconds = yield from _filled(task, task.fractional, depths, depth)
        if seconds is None or seconds > best * (1 - NEAR):
            return
        best = seconds
        depths.leave_out(depth)


def _trees(task: Task, depths: Depths) -> Iterator[Draft]:
    """Trees of the depths that look best, then those of the best depth filled well."""
    problem, fractional = task.problem, task.fractional
    known: set[int] = set()
    while (depth := depths.best()) is not None and depth not in known and not task.over:
        shallow = generate(
            problem,
            deadline=task.deadline,
            tolerance=TOLERANCE,
            seed=task.seed,
            pricer=limited(depth, seed=task.seed),
            improver=onward(depth),
            start=no_deeper(problem, fractional.pool, depth),
            warm_up=WARM_UP,
            patience=PATIENCE,
            known_bound=fractional.bound,
            known_prices=fractional.prices,
            cancel=task.cancel,
        )
        known.add(depth)
        depths.learn(depth, shallow.seconds)
        fractional = replace(fractional, pool=Columns.join([fractional.pool, shallow.pool]))
        yield draft_of(problem, shallow, task.launch_ns)
    if depth is not None:
        yield from _filled(task, fractional, depths, depth)


def _filled(task: Task, fractional: Fractional, depths: Depths, depth: int) -> Generator[Draft, None, float | None]:
    """Pipelines of one depth, filled well; returns the seconds of the best, None where there is none."""
    problem, rounds = task.problem, depth * depths.halves
    start = starting(problem, fractional, depth)
    _, guessed = depths.guess(depth)
    best = None
    # a pipeline that hardly is one may be better off as none
    for segments in (guessed, 1) if 1 < guessed <= rounds else (guessed,):
        if task.over:
            return best
        filled = staged(
            problem,
            rounds,
            segments,
            start,
            scale=fractional.seconds,
            wait=depths.wait,
            seed=task.seed,
            stop=lambda: task.over,
        )
        if filled is not None:
            draft = assembly.draft_of(
                problem,
                filled.routes,
                filled.shares,
                prices=fractional.prices,
                launch_ns=task.launch_ns,
                segments=filled.segments,
            )
            yield draft
            seconds = draft.pipeline(problem, task.launch_ns).seconds(draft.segments)
            best = seconds if best is None else min(best, seconds)
    return best


def draft_of(problem: Problem, fractional: Fractional, launch_ns: float) -> Draft:
    """The plan of a fractional solution, every hop as early as its route allows."""
    routes = timing.earliest(problem, fractional.columns)
    return assembly.draft_of(problem, routes, fractional.shares, prices=fractional.prices, launch_ns=launch_ns)


def depth_of(draft: Draft) -> int:
    """Rounds of one segment."""
    return int(draft.transfers.round.max(initial=-1)) + 1


def starting(problem: Problem, fractional: Fractional, depth: int) -> Timed:
    """Promising routes of at most so many rounds; the out-trees of an allreduce begin when all in-trees are done."""
    columns = no_deeper(problem, most_promising(problem, fractional, STARTING), depth)
    routes = timing.earliest(problem, columns)
    if not problem.paired:
        return routes
    outward = problem.commodities.shape[columns.commodity] == Shape.OUT_TREE
    return Timed(columns, routes.rounds + depth * np.repeat(outward, np.diff(columns.starts)))


def most_promising(problem: Problem, fractional: Fractional, most: int) -> Columns:
    """The columns in use, and of the others those whose price is nearest to the cheapest of their commodity."""
    pool = fractional.pool
    if len(pool) <= most:
        return pool
    price = np.asarray(pool.usage(problem) @ fractional.prices).ravel()
    least = np.full(len(problem.commodities), np.inf)
    np.minimum.at(least, pool.commodity, price)
    excess = price / np.maximum(least[pool.commodity], 1e-300)
    others = Columns.join([fractional.columns, pool.take(np.sort(np.argsort(excess, kind="stable")[:most]))])
    keys = others.keys()
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    return others.take(np.array(sorted(first.values())))


def no_deeper(problem: Problem, columns: Columns, depth: int) -> Columns:
    """Those of the columns that are at most so deep."""
    return columns.take(np.flatnonzero(timing.earliest(problem, columns).last < depth))


STRATEGY = Strategy(name="routed", collectives=frozenset(Collective), needs_all_pairs=False, drafts=drafts)
