"""The front door: every strategy that serves the request, the best plan by the cost model, and how good it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from solver import backend
from solver.backend import Cancel
from solver.bound import Bound, Problem, generate
from solver.bound.certificate import bound_of
from solver.bound.shallow import farthest, limited
from solver.oblivious import strategy as oblivious
from solver.replan import beginning, prices_of, started_from
from solver.schedule import classic, direct, routed, spread
from solver.schedule.draft import Draft, Strategy, Task
from synth.collective import Demand
from synth.errors import SolveError
from synth.plan import Plan, Predicted, expand
from synth.simulator import Cost
from synth.topology import Routes, Topology
from synth.units import format_seconds
from synth.verifier import Violation, verify
from synth.verifier.holdings import check_movement, check_reduction
from synth.verifier.rules import check_order

STRATEGIES: tuple[Strategy, ...] = (
    direct.STRATEGY,
    classic.RING,
    classic.HALVING_DOUBLING,
    classic.BINOMIAL_TREE,
    classic.TWO_LEVEL,
    spread.STRATEGY,
    routed.STRATEGY,
    oblivious.STRATEGY,
)
"""In the order they are tried; the first of equally good plans wins."""

BASELINE_RANKS = 128
"""Beyond so many ranks only the direct exchange is tried as a baseline: the others list every transfer."""

QUIET_SECONDS = 1.0
"""The steps of the linear program are reported this far apart."""

PLANNED = 4096
"""Beyond so many ranks only bounds are proven: plans are sought among all pairs of ranks."""

EXPANDED = 64
"""Up to so many ranks plans are written out in full; larger ones list one representative per orbit."""

VERIFIED = 32
"""Up to so many ranks symmetric plans are verified in full, beyond that one representative per orbit."""

RESERVE = 0.1
"""Part of the time limit that is kept for writing out and verifying the plan."""

BOUND_PART = 0.6
"""Part of the time limit that the linear program may use."""


class Termination(StrEnum):
    """Why a solve ended."""

    FINISHED = "finished"
    """Everything was tried."""
    OPTIMAL = "optimal"
    """The plan meets its bound within 0.1 %."""
    TIME_LIMIT = "time-limit"
    """Time was up; the plan is the best found so far."""
    CANCELLED = "cancelled"
    """Somebody asked to stop; the plan is the best found so far."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known while a solve runs.

    Attributes:
        message: one line for people.
        incumbent_seconds: predicted time of the best plan so far.
        bound_seconds: what no schedule can beat, as far as it is proven.
        gap: incumbent / bound - 1.
    """

    message: str
    incumbent_seconds: float | None = None
    bound_seconds: float | None = None
    gap: float | None = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A plan, why the search stopped, how good it is and what it cost.

    Attributes:
        plan: verified.
        demand: what it was made for.
        strategy: what made it.
        termination: why the search stopped.
        bound: what no schedule can beat.
        predicted_seconds: what the chosen cost model says.
        gap: predicted / bound - 1.
        seconds: wall time of the solve.
        candidates: predicted seconds of the best plan of every strategy that served.
    """

    plan: Plan
    demand: Demand
    strategy: str
    termination: Termination
    bound: Bound
    predicted_seconds: float
    gap: float
    seconds: float
    candidates: dict[str, float]


def solve(
    topology: Topology,
    demand: Demand,
    *,
    ranks: Sequence[str] | None = None,
    time_limit: float = 60.0,
    cost: Cost | str = Cost.ROUNDS,
    launch_ns: float = 0.0,
    seed: int = 0,
    strategies: Sequence[str] | None = None,
    symmetric: bool = True,
    start: Plan | None = None,
    cancel: Cancel = lambda: False,
    progress: Callable[[Progress], None] = lambda news: None,
) -> Solved:
    """Plan a collective.

    Args:
        topology: where it runs.
        demand: what must be delivered.
        ranks: device id of each rank, helpers last; default: every GPU, in the topology's order.
        time_limit: seconds; the best plan so far is given when they are over.
        cost: the cost model that decides.
        launch_ns: cost of starting one round.
        seed: for every random choice; the same request with the same seed gives the same plan.
        strategies: names of those to try; default: all but those that are tried by name only.
        symmetric: use the symmetries of the machine, where there are any.
        start: a plan for the same collective among the same GPUs, from before some links changed; its routes are what
            the solve begins with, which takes a fraction of the time.
        cancel: asked now and then; when true, the best plan so far is given.
        progress: told what is going on.

    Raises:
        TopologyError: the ranks make no sense on the topology or cannot reach each other.
        SolveError: no strategy serves the request, or there are too many ranks.
        InputError: ``start`` is for another collective or other ranks.
    """
    began = time.monotonic()
    routes = Routes.among(topology, ranks)
    if routes.ranks > PLANNED:
        raise SolveError(f"plans are made for up to {PLANNED} ranks, not {routes.ranks}; synth bound still bounds them")
    problem = Problem.of(routes, demand, symmetric=symmetric)
    earlier = beginning(problem, start)
    find = partial(
        generate,
        problem,
        deadline=began + BOUND_PART * time_limit,
        seed=seed,
        cancel=cancel,
        progress=_now_and_then(progress),
    )
    if earlier is None:
        fractional = find(second=limited(max(farthest(problem), 2), seed=seed))
    else:
        fractional = find(start=earlier.routes.columns, known_prices=prices_of(problem, earlier), warm_up=0)
    bound = bound_of(problem, fractional, began, launch_ns=launch_ns if Cost(cost) is Cost.ROUNDS else 0.0)
    progress(Progress(f"bound {format_seconds(bound.seconds)}", bound_seconds=bound.seconds))
    task = Task(
        problem=problem,
        fractional=fractional,
        cost=Cost(cost),
        launch_ns=launch_ns,
        seed=seed,
        deadline=began + (1 - RESERVE) * time_limit,
        cancel=cancel,
        progress=lambda line: progress(Progress(line, bound_seconds=bound.seconds)),
    )
    best: tuple[float, str, Draft] | None = None
    candidates: dict[str, float] = {}
    for strategy in STRATEGIES if earlier is None else started_from(earlier, STRATEGIES):
        if strategy.by_name if strategies is None else strategy.name not in strategies:
            continue
        if strategy.baseline and strategies is None and problem.routes.ranks > BASELINE_RANKS and best is not None:
            continue
        if not strategy.serves(problem):
            continue
        for draft in strategy.drafts(task):
            seconds = draft.seconds(task)
            candidates[strategy.name] = min(seconds, candidates.get(strategy.name, seconds))
            if best is None or seconds < best[0]:
                best = (seconds, strategy.name, draft)
                progress(_news(strategy.name, seconds, bound))
            if task.over:
                break
        if task.over and best is not None:
            break
    if best is None:
        raise SolveError(f"no strategy serves {demand.collective.value} here; known: {', '.join(names())}")
    seconds, name, draft = best
    gap = _gap(seconds, bound.seconds)
    termination = _termination(task, gap)
    return Solved(
        plan=finish(
            problem,
            draft,
            bound,
            strategy=name,
            termination=termination,
            cost=task.cost,
            launch_ns=launch_ns,
            seed=seed,
        ),
        demand=demand,
        strategy=name,
        termination=termination,
        bound=bound,
        predicted_seconds=seconds,
        gap=gap,
        seconds=time.monotonic() - began,
        candidates=candidates,
    )


def names() -> tuple[str, ...]:
    """Names of all strategies."""
    return tuple(strategy.name for strategy in STRATEGIES)


def _gap(seconds: float, bound: float) -> float:
    return max(seconds / bound - 1, 0.0) if bound > 0 else 0.0


def _now_and_then(progress: Callable[[Progress], None]) -> Callable[[str], None]:
    """Pass on at most one line every ``QUIET_SECONDS``."""
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last > QUIET_SECONDS:
            last = time.monotonic()
            progress(Progress(line))

    return tell


def _news(strategy: str, seconds: float, bound: Bound) -> Progress:
    gap = _gap(seconds, bound.seconds)
    return Progress(f"{strategy}: {format_seconds(seconds)}, {gap:.2%} over the bound", seconds, bound.seconds, gap)


def _termination(task: Task, gap: float) -> Termination:
    if gap <= 1e-3:
        return Termination.OPTIMAL
    if task.cancel():
        return Termination.CANCELLED
    return Termination.TIME_LIMIT if time.monotonic() > task.deadline else Termination.FINISHED


def finish(
    problem: Problem,
    draft: Draft,
    bound: Bound,
    *,
    strategy: str,
    termination: Termination,
    cost: Cost,
    launch_ns: float,
    seed: int,
) -> Plan:
    """The complete document, verified. Wall time stays out of it: the same request must give the same bytes.

    Raises:
        SolveError: the schedule breaks a rule.
    """
    topology, demand = problem.routes.topology, problem.demand
    bare = draft.plan(problem)
    seconds = draft.pipeline(problem, 0.0).seconds(draft.segments)
    plan = replace(
        expand(bare) if problem.routes.ranks <= EXPANDED else bare,
        certificate=bound.certificate,
        predicted=Predicted((demand.bytes,), (seconds,)),
        solver={
            "strategy": strategy,
            "termination": termination.value,
            "gap": float(f"{_gap(seconds, bound.certificate.best_bound_ns * 1e-9):.6g}"),
            "seed": seed,
            "cost": cost.value,
            "launch_ns": launch_ns,
            "versions": backend.versions(),
            **draft.notes,
        },
    )
    whole = bare.symmetry is None or problem.routes.ranks <= VERIFIED
    violations = verify(plan, topology, routes=problem.routes) if whole else tuple(_verify_representatives(bare))
    if violations:
        raise SolveError(f"strategy {strategy} made a plan that breaks a rule ({violations[0].message}); report it")
    return plan


def _verify_representatives(plan: Plan) -> Iterator[Violation]:
    """Rules of a symmetric plan, checked on one chunk per orbit: its images are as valid as it is.

    The group was checked when it was found, and the strategies make shares whole by construction.
    """
    yield from check_order(plan)
    yield from check_reduction(plan) if plan.collective.reduces else check_movement(plan)
