"""The three questions that exact schedules answer.

* :func:`least_time`: which schedule is fastest by the official cost model, blocks cut into so many chunks;
* :func:`least_rounds`: in how few rounds can it be done, where a link of k units of rate carries k chunks a round;
* :func:`least_slots`: how few slots do so many rounds need, where such a link carries k chunks a slot.

The last two are what SCCL asks (Cai et al., "Synthesizing optimal collective algorithms", 2021): its steps are rounds
here, its rounds are slots. Schedules are those without segments; on symmetric machines with many ranks, those that look
the same from every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from solver.apart import News
from solver.backend import Stopped
from solver.bound import Problem
from solver.exact.clock import Clock
from solver.exact.model import Model, check, fewest_rounds
from solver.schedule.draft import Draft
from synth.errors import DemandError, LimitError, SolveError

SLACK = 1e-6
"""Values this close, relatively, are equal."""


class Objective(StrEnum):
    """What is minimised."""

    TIME = "time"
    ROUNDS = "rounds"
    SLOTS = "slots"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """The best schedule found, and how good it is proven to be.

    Attributes:
        objective: what was minimised.
        draft: the schedule; None where none was found in time.
        value: of the objective: seconds, rounds or slots; infinite without a schedule.
        bound: no schedule that was asked for has less.
        rounds: most rounds that a schedule was allowed.
        chunks: equal parts of every block.
        any_rounds: whether the bound holds for any number of rounds.
        symmetric: whether only schedules that look the same from all ranks were searched.
    """

    objective: Objective
    draft: Draft | None
    value: float
    bound: float
    rounds: int
    chunks: int
    any_rounds: bool = False
    symmetric: bool = False

    @property
    def proven(self) -> bool:
        """Whether value and bound meet."""
        return self.value <= self.bound * (1 + SLACK)

    @property
    def gap(self) -> float:
        """How far the value is over the bound, relatively; infinite while nothing is known."""
        return max(self.value / self.bound - 1, 0.0) if self.bound > 0 else float("inf")


Tell = Callable[[Objective, int, float, float], None]
"""Takes (objective, rounds, incumbent, bound) whenever more is known."""


def quiet(objective: Objective, rounds: int, incumbent: float, bound: float) -> None:
    """Tell nobody."""


def least_time(
    problem: Problem,
    *,
    rounds: int | None = None,
    chunks: int = 1,
    launch_ns: float = 0.0,
    bandwidth_seconds: float = 0.0,
    clock: Clock,
    seed: int = 0,
    tell: Tell = quiet,
) -> Exact:
    """The fastest schedule.

    Args:
        problem: what moves.
        rounds: most rounds; default: as many as may help.
        chunks: equal parts that every block is cut in.
        launch_ns: cost of starting one round.
        bandwidth_seconds: what the links alone are known to need.
        clock: says when to stop.
        seed: for HiGHS.
        tell: hears of progress.

    Raises:
        DemandError: the collective or the number of ranks is not served, or so few rounds cannot be enough.
    """
    routes = problem.routes
    least_latency = float(routes.latency_ns[routes.exists].min()) * 1e-9 + launch_ns * 1e-9

    def with_more(than: int) -> float:
        """Seconds that a schedule of more rounds needs at least."""
        return (than + 1) * least_latency + bandwidth_seconds

    most = routes.ranks - 1 if rounds is None else rounds
    best: Exact | None = None
    allowed = _allowed(problem, rounds)
    bound = 0.0

    def together(objective: Objective, rounds: int, incumbent: float, proven: float) -> None:
        known = float("inf") if best is None else best.value
        tell(objective, rounds, min(incumbent, known), max(bound, min(proven, with_more(rounds))))

    while True:
        try:
            found = _time(problem, allowed, chunks, launch_ns, bandwidth_seconds, clock, seed, together)
        except (Stopped, LimitError):
            if best is None and not clock.over():
                raise
            break
        bound = max(bound, min(found.bound, with_more(allowed)))  # whatever the number of rounds
        if allowed == rounds:
            bound = max(bound, found.bound)
        if best is None or found.value < best.value:
            best = found
        closed = with_more(allowed) >= best.value * (1 - SLACK)
        if allowed >= most or closed or clock.over():
            break
        allowed += 1
    value = float("inf") if best is None else best.value
    return Exact(
        objective=Objective.TIME,
        draft=None if best is None else best.draft,
        value=value,
        bound=min(bound, value),
        rounds=allowed,
        chunks=chunks,
        any_rounds=rounds is None,
        symmetric=problem.group is not None,
    )


def _time(
    problem: Problem,
    rounds: int,
    chunks: int,
    launch_ns: float,
    bandwidth_seconds: float,
    clock: Clock,
    seed: int,
    tell: Tell,
) -> Exact:
    """The fastest schedule of at most so many rounds."""
    model = Model(problem, rounds=rounds, chunks=chunks, seed=seed, cancel=clock.over)
    program, routes = model.program, problem.routes
    latency_ns = (routes.latency_ns.T if model.backwards else routes.latency_ns) + launch_ns
    levels = np.unique([latency_ns[a, b] for a, b in model.hops])
    steps = np.diff(levels, prepend=0.0)
    cost: list[Any] = []
    busiest = []
    before: list[Any] = []
    for r in range(rounds):
        reached = [program.whole(f"z{r}_{level}") for level in range(len(levels))]  # some hop is at least so slow
        for slower, faster in zip(reached[1:], reached, strict=False):
            program.require(slower <= faster)
        if r < model.fewest:
            program.require(reached[0] >= 1)
        if before:
            program.require(reached[0] <= before[0])  # empty rounds come last
        before = reached
        cost += [float(step) * used for step, used in zip(steps, reached, strict=True)]
        for (_, a, b, round), sent in model.sent.items():
            if round == r:
                program.require(sent <= reached[int(np.searchsorted(levels, latency_ns[a, b]))])
        busy = program.real(f"busy{r}")
        busiest.append(busy)
        for terms in model.loads(r, model.bytes * 1e9).values():
            program.require(program.total(terms) <= busy)
    program.require(program.total(busiest) >= bandwidth_seconds * 1e9 * (1 - 1e-7))
    return _solve(model, Objective.TIME, program.total([*cost, *busiest]), clock, tell, scale=1e-9)


def least_rounds(
    problem: Problem,
    *,
    rounds: int | None = None,
    chunks: int = 1,
    unit_bytes_per_s: float | None = None,
    clock: Clock,
    seed: int = 0,
    tell: Tell = quiet,
) -> Exact:
    """The fewest rounds of one slot each; arguments as :func:`least_time` and :func:`least_slots`.

    Raises:
        DemandError: as :func:`least_time`.
        SolveError: there is no schedule of so many rounds.
    """
    allowed = _allowed(problem, rounds)
    most = len(problem.commodities) * chunks * problem.routes.ranks if rounds is None else rounds
    while allowed <= most:
        try:
            found = _slots(problem, allowed, chunks, unit_bytes_per_s, clock, seed, tell, Objective.ROUNDS)
        except _Infeasible:
            allowed += 1
            continue
        return replace(found, bound=float(allowed))  # fewer were shown to be impossible
    raise SolveError(f"exact: no schedule of {most} rounds exists in which a link of one unit carries one chunk each")


def least_slots(
    problem: Problem,
    *,
    rounds: int | None = None,
    chunks: int = 1,
    unit_bytes_per_s: float | None = None,
    clock: Clock,
    seed: int = 0,
    tell: Tell = quiet,
) -> Exact:
    """The fewest slots in so many rounds.

    Args:
        problem: what moves.
        rounds: how many; default: the fewest that every chunk needs to arrive.
        chunks: equal parts that every block is cut in.
        unit_bytes_per_s: a link of k times this rate carries k chunks a slot; default: the slowest link's rate.
        clock: says when to stop.
        seed: for HiGHS.
        tell: hears of progress.

    Raises:
        DemandError: as :func:`least_time`.
    """
    fewest = _allowed(problem, rounds)
    allowed = fewest if rounds is None else rounds
    return _slots(problem, allowed, chunks, unit_bytes_per_s, clock, seed, tell, Objective.SLOTS)


def _slots(
    problem: Problem,
    rounds: int,
    chunks: int,
    unit_bytes_per_s: float | None,
    clock: Clock,
    seed: int,
    tell: Tell,
    objective: Objective,
) -> Exact:
    try:
        model = Model(problem, rounds=rounds, chunks=chunks, seed=seed, cancel=clock.over)
    except Stopped:
        return _nothing(problem, objective, rounds, chunks)
    program = model.program
    used = np.unique(problem.routes.links)
    unit = float(problem.routes.topology.bytes_per_s[used].min()) if unit_bytes_per_s is None else unit_bytes_per_s
    most = 1 if objective is Objective.ROUNDS else len(model.root) * problem.routes.ranks
    slots = [program.whole(f"slots{r}", 1 if r < model.fewest else 0, most) for r in range(rounds)]
    ones = np.full(len(model.root), unit)
    for r, slot in enumerate(slots):
        for terms in model.loads(r, ones).values():
            program.require(program.total(terms) <= slot)
    return _solve(model, objective, program.total(slots), clock, tell)


def _nothing(problem: Problem, objective: Objective, rounds: int, chunks: int) -> Exact:
    """No schedule, and hardly a bound, because time ran out at once."""
    return Exact(
        objective=objective,
        draft=None,
        value=float("inf"),
        bound=float(fewest_rounds(problem)),
        rounds=rounds,
        chunks=chunks,
        symmetric=problem.group is not None,
    )


class _Infeasible(Exception):
    """No schedule does it."""


def _solve(model: Model, objective: Objective, wanted: Any, clock: Clock, tell: Tell, *, scale: float = 1.0) -> Exact:
    """Minimise and read the schedule."""

    def hear(news: News) -> None:
        tell(objective, model.rounds, news.objective * scale, max(news.bound * scale, 0.0))

    try:
        found = model.minimise(wanted, time_limit=clock.left, cancel=clock.cancelled, tell=hear)
    except SolveError as error:
        if "nfeasible" not in error.message:
            raise
        raise _Infeasible from None
    value, bound = found.objective * scale, found.bound * scale
    if scale == 1.0:  # whole numbers
        bound = float(np.ceil(bound - 1e-6)) if np.isfinite(bound) else bound
    floor = float(model.fewest) if scale == 1.0 else 0.0
    return Exact(
        objective=objective,
        draft=model.draft() if np.isfinite(value) else None,
        value=value,
        bound=max(value if found.proven else bound, floor),
        rounds=model.rounds,
        chunks=model.chunks,
        symmetric=model.problem.group is not None,
    )


def _allowed(problem: Problem, rounds: int | None) -> int:
    """Rounds to begin with.

    Raises:
        DemandError: fewer were asked for than data needs.
    """
    check(problem)
    fewest = max(fewest_rounds(problem), 1)
    if rounds is not None and rounds < fewest:
        raise DemandError(f"exact: {rounds} rounds are too few; data needs {fewest} to arrive", subject="rounds")
    return fewest
