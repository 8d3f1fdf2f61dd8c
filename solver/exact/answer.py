"""The front door to exact schedules: search, put together, verify, and compare with what the strategies found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver import portfolio
from solver.backend import Cancel
from solver.bound import Problem
from solver.exact.clock import Clock
from solver.exact.fastest import least_time
from solver.exact.model import PLAIN_RANKS, check
from solver.exact.search import Exact, Objective, Search, Tell
from solver.exact.slots import least_rounds, least_slots
from solver.portfolio import Progress, Solved, Termination
from solver.schedule.draft import Draft
from synth.collective import EVERY, Collective, Demand
from synth.errors import SolveError
from synth.plan import Chunks, Plan, Transfers
from synth.simulator import Cost
from synth.topology import Routes, Topology
from synth.units import format_seconds

PORTFOLIO_PART = 0.25
"""Part of the time limit that the strategies may use."""
HALVES = (Collective.REDUCE_SCATTER, Collective.ALLGATHER)
"""What an allreduce is put together of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSolved:
    """A plan and what was proven about it.

    Attributes:
        solved: the plan, as the portfolio answers; the exact schedule where that is at least as good.
        exact: what the integer programs found; of an allreduce, both halves together.
        used: whether the plan is the exact schedule.
    """

    solved: Solved
    exact: Exact
    used: bool


def solve(
    topology: Topology,
    demand: Demand,
    *,
    ranks: Sequence[str] | None = None,
    objective: Objective | str = Objective.TIME,
    rounds: int | None = None,
    chunks: int = 1,
    unit_bytes_per_s: float | None = None,
    time_limit: float = 60.0,
    launch_ns: float = 0.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
    progress: Callable[[Progress], None] = lambda news: None,
) -> ExactSolved:
    """Find a schedule that is proven to be the best of its kind.

    Args:
        topology: where it runs.
        demand: what must be delivered.
        ranks: device id of each rank; default: every GPU.
        objective: time (:mod:`solver.exact.fastest`), number of rounds, or of slots (:mod:`solver.exact.slots`).
        rounds: most rounds; of an allreduce, of each half.
        chunks: equal parts that every block is cut in.
        unit_bytes_per_s: for rounds and slots, the rate of a link that carries one chunk.
        time_limit: seconds; the best so far is given when they are over.
        launch_ns: cost of starting one round.
        seed: the same request with the same seed gives the same plan, if time suffices.
        cancel: asked all the time; when true, the best so far is given within a second.
        progress: told incumbent, bound and gap.

    Raises:
        DemandError: the number of ranks is not served, or so few rounds cannot be enough.
        SolveError: there is no such schedule, or, for rounds and slots, none was found in time.
    """
    began = time.monotonic()
    routes = Routes.among(topology, ranks)
    symmetric = routes.ranks > PLAIN_RANKS and not demand.collective.rooted
    problem = Problem.of(routes, demand, symmetric=symmetric)
    check(problem)
    solved = portfolio.solve(
        topology,
        demand,
        ranks=ranks,
        time_limit=PORTFOLIO_PART * time_limit,
        launch_ns=launch_ns,
        seed=seed,
        cancel=cancel,
        progress=progress,
    )

    def prove(part: Demand, clock: Clock, bandwidth_seconds: float) -> Exact:
        search = Search(
            problem=Problem.of(routes, part, symmetric=symmetric),
            rounds=rounds,
            chunks=chunks,
            clock=clock,
            seed=seed,
            tell=_teller(progress),
        )
        match Objective(objective):
            case Objective.TIME:
                return least_time(search, launch_ns=launch_ns, bandwidth_seconds=bandwidth_seconds)
            case Objective.ROUNDS:
                return least_rounds(search, unit_bytes_per_s=unit_bytes_per_s)
            case Objective.SLOTS:
                return least_slots(search, unit_bytes_per_s=unit_bytes_per_s)

    whole = Clock(began + time_limit, cancel)
    if demand.collective is Collective.ALLREDUCE:
        first, second = (replace(demand, collective=half) for half in HALVES)
        before = prove(first, Clock.after(whole.left / 2, cancel), 0.0)
        found = _one_after_another(before, prove(second, whole, 0.0))
    else:
        found = prove(demand, whole, solved.bound.certificate.bound_ns * 1e-9)
    return _answer(problem, solved, found, launch_ns=launch_ns, seed=seed, began=began, cancel=cancel)


def _teller(progress: Callable[[Progress], None]) -> Tell:
    def tell(objective: Objective, rounds: int, incumbent: float, bound: float) -> None:
        gap = max(incumbent / bound - 1, 0.0) if bound > 0 else float("inf")
        timed = objective is Objective.TIME
        values = (
            ("none" if not np.isfinite(x) else format_seconds(x) if timed else f"{x:g} {objective.value}")
            for x in (incumbent, bound)
        )
        line = "exact, at most {} rounds: incumbent {}, bound {}, gap {}".format(
            rounds, *values, f"{gap:.2%}" if np.isfinite(gap) else "unknown"
        )
        known = timed and np.isfinite(incumbent)
        progress(Progress(line, incumbent if known else None, bound if timed else None, gap if known else None))

    return tell


def _one_after_another(first: Exact, second: Exact) -> Exact:
    """An allreduce: part r is reduced to rank r and spread from there."""
    draft = None
    if first.draft is not None and second.draft is not None:
        before, after = first.draft, second.draft
        later = int(before.transfers.round.max(initial=-1)) + 1
        columns = [
            np.concatenate(
                [getattr(before.transfers, name), getattr(after.transfers, name) + later * (name == "round")]
            )
            for name in Transfers.__slots__
        ]
        count = len(before.chunks)
        every = np.full(count, EVERY)
        draft = Draft(
            chunks=Chunks(every, every, np.ones(count, dtype=np.int64)),
            transfers=Transfers(*columns).sorted(),
            denominator=before.denominator,
        )
    return replace(
        first,
        draft=draft,
        value=first.value + second.value,
        bound=first.bound + second.bound,
        rounds=first.rounds + second.rounds,
        any_rounds=first.any_rounds and second.any_rounds,
    )


def _answer(
    problem: Problem, solved: Solved, exact: Exact, *, launch_ns: float, seed: int, began: float, cancel: Cancel
) -> ExactSolved:
    seconds = time.monotonic() - began
    timed = exact.objective is Objective.TIME
    if exact.draft is None:
        if not timed:
            raise SolveError(
                f"exact: found no schedule of {exact.rounds} rounds in {seconds:.1f} s; allow more time or rounds"
            )
        return _kept(solved, exact, seconds, cancel)
    draft = exact.draft
    if problem.paired:
        draft = replace(draft, denominator=draft.denominator * problem.demand.ranks)
    predicted = draft.pipeline(problem, launch_ns).seconds(1)
    candidates = solved.candidates | {"exact": predicted}
    if timed and predicted > solved.predicted_seconds:
        return _kept(replace(solved, candidates=candidates), exact, seconds, cancel)
    gap = max(predicted / solved.bound.seconds - 1, 0.0) if solved.bound.seconds > 0 else 0.0
    termination = _ended(gap, exact, cancel)
    plan = portfolio.finish(
        problem,
        draft,
        solved.bound,
        strategy="exact",
        termination=termination,
        cost=Cost.ROUNDS,
        launch_ns=launch_ns,
        seed=seed,
    )
    return ExactSolved(
        solved=replace(
            solved,
            plan=_stated(plan, exact),
            strategy="exact",
            termination=termination,
            predicted_seconds=predicted,
            gap=gap,
            seconds=seconds,
            candidates=candidates,
        ),
        exact=exact,
        used=True,
    )


def _kept(solved: Solved, exact: Exact, seconds: float, cancel: Cancel) -> ExactSolved:
    """The strategies' plan, because the exact schedule is slower or was not found."""
    termination = _ended(solved.gap, exact, cancel)
    plan = _stated(solved.plan, exact)
    plan = replace(plan, solver={**plan.solver, "termination": termination.value})
    return ExactSolved(
        solved=replace(solved, plan=plan, termination=termination, seconds=seconds), exact=exact, used=False
    )


def _ended(gap: float, exact: Exact, cancel: Cancel) -> Termination:
    """Why the search stopped."""
    if gap <= 1e-3:
        return Termination.OPTIMAL
    if exact.proven:
        return Termination.FINISHED
    return Termination.CANCELLED if cancel() else Termination.TIME_LIMIT


def _stated(plan: Plan, exact: Exact) -> Plan:
    """The plan with what was proven about its kind."""
    return replace(plan, solver={**plan.solver, "exact": exact.to_document()})
