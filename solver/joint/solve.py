"""Plans for several groups that run at once: together, against each planned as if it were alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from solver import portfolio
from solver.backend import Cancel
from solver.bound import Columns, Problem
from solver.bound.certificate import DIGITS, SAFETY
from solver.bound.pricing import Pricer
from solver.bound.shallow import farthest, limited
from solver.joint.program import Shared, share
from solver.portfolio import Progress, Solved, Termination
from solver.schedule import routed, timing
from solver.schedule.draft import Draft
from synth.collective import Demand
from synth.errors import DemandError
from synth.plan import Certificate, Plan
from synth.simulator import Cost
from synth.simulator.together import simulate_together
from synth.topology import Routes, Topology
from synth.units import format_seconds
from synth.verifier.certificate import proven_together_ns

ALONE = 0.4
"""Part of the time limit in which the groups are planned alone."""
DEPTHS = 3
"""Routes of so many depths are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One group's collective.

    Attributes:
        ranks: device id of each rank.
        demand: what they exchange.
    """

    ranks: tuple[str, ...]
    demand: Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Plans of several groups and how long they take at the same time.

    Attributes:
        plans: one per group, verified.
        alone: each group's own solve, as if nothing else ran.
        seconds: until all plans have ended, running together (rounds model).
        separate_seconds: the same for the plans made alone.
        certificate: of kind ``lengths``; what no schedules of all groups together can beat, see
            :func:`synth.verifier.certificate.proven_together_ns`.
        bound_seconds: the larger of the proven bound and the longest latency.
        gap: seconds / bound - 1.
        termination: why the search stopped.
        solve_seconds: wall time.
    """

    plans: tuple[Plan, ...]
    alone: tuple[Solved, ...]
    seconds: float
    separate_seconds: float
    certificate: Certificate
    bound_seconds: float
    gap: float
    termination: Termination
    solve_seconds: float


def solve_together(
    topology: Topology,
    asks: Sequence[Ask],
    *,
    time_limit: float = 60.0,
    launch_ns: float = 0.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
    progress: Callable[[Progress], None] = lambda news: None,
) -> Joint:
    """Plan several collectives that start together, so that the last ends as early as possible.

    Each group relays through its own ranks only. The plans made alone are a candidate too, so that planning together
    is never worse.

    Args:
        topology: where they run.
        asks: at least two; groups may share GPUs.
        time_limit: seconds; the best found so far is given when they are over.
        launch_ns: cost of starting one round.
        seed: for every random choice.
        cancel: asked now and then; when true, the best so far is given.
        progress: told what is going on.

    Raises:
        DemandError: there are fewer than two groups.
        TopologyError: some group's ranks cannot reach each other.
    """
    if len(asks) < 2:
        raise DemandError(f"groups: there is {len(asks)}; planning together needs at least 2", subject="groups")
    began = time.monotonic()
    over = _Over(began + time_limit, cancel)
    alone = _alone(topology, asks, time_limit, launch_ns, seed, cancel, progress)
    demands = [ask.demand for ask in asks]
    price = partial(simulate_together, topology=topology, demands=demands, launch_ns=launch_ns)
    best = separate = price([solved.plan for solved in alone])
    plans = tuple(solved.plan for solved in alone)
    problems = [Problem.of(Routes.among(topology, ask.ranks), ask.demand) for ask in asks]
    shared = share(problems, seed=seed, stop=over)
    progress(Progress(f"all links together: {format_seconds(shared.seconds)}", bound_seconds=shared.bound))
    everyone = Routes.among(topology, tuple(dict.fromkeys(device for ask in asks for device in ask.ranks)))
    for drafts in _drafts(problems, shared, everyone, launch_ns, seed, over):
        bare = [draft.plan(problem) for draft, problem in zip(drafts, problems, strict=True)]
        seconds = price(bare)
        gap = seconds / max(shared.bound, 1e-300) - 1
        progress(Progress(f"together: {format_seconds(seconds)}", seconds, shared.bound, gap))
        if seconds < best:
            best = seconds
            plans = tuple(
                portfolio.finish(
                    problem,
                    draft,
                    solved.bound,
                    strategy="joint",
                    termination=Termination.FINISHED,
                    cost=Cost.ROUNDS,
                    launch_ns=launch_ns,
                    seed=seed,
                )
                for problem, draft, solved in zip(problems, drafts, alone, strict=True)
            )
    certificate = _certify(problems, shared.prices)
    bound = max(certificate.best_bound_ns * 1e-9, *(solved.bound.seconds for solved in alone))
    gap = max(best / bound - 1, 0.0) if bound > 0 else 0.0
    return Joint(
        plans=plans,
        alone=tuple(alone),
        seconds=best,
        separate_seconds=separate,
        certificate=certificate,
        bound_seconds=bound,
        gap=gap,
        termination=over.termination(gap),
        solve_seconds=time.monotonic() - began,
    )


class _Over:
    """Whether to stop, and how that is called."""

    def __init__(self, deadline: float, cancel: Cancel) -> None:
        self._deadline, self._cancel = deadline, cancel

    def __call__(self) -> bool:
        return time.monotonic() > self._deadline or self._cancel()

    def termination(self, gap: float) -> Termination:
        if gap <= 1e-3:
            return Termination.OPTIMAL
        if self._cancel():
            return Termination.CANCELLED
        return Termination.TIME_LIMIT if self() else Termination.FINISHED


def _alone(
    topology: Topology,
    asks: Sequence[Ask],
    time_limit: float,
    launch_ns: float,
    seed: int,
    cancel: Cancel,
    progress: Callable[[Progress], None],
) -> list[Solved]:
    """Each group's own best plan."""
    found = []
    for number, ask in enumerate(asks):
        solved = portfolio.solve(
            topology,
            ask.demand,
            ranks=ask.ranks,
            time_limit=ALONE * time_limit / len(asks),
            launch_ns=launch_ns,
            seed=seed,
            cancel=cancel,
        )
        progress(Progress(f"group {number} alone: {format_seconds(solved.predicted_seconds)}"))
        found.append(solved)
    return found


def _drafts(
    problems: Sequence[Problem], shared: Shared, everyone: Routes, launch_ns: float, seed: int, over: Cancel
) -> list[list[Draft]]:
    """The optimal routes of all groups, then optimal ones of limited depth."""
    found = [_timed(problems, shared, everyone, launch_ns)]
    deepest = max(routed.depth_of(draft) for draft in found[0])
    pools = [part.pool for part in shared.parts]
    for more in range(DEPTHS):
        depths = [max(farthest(problem), 2) + more for problem in problems]
        if min(depths) >= deepest or over():
            break

        def pricer(number: int, depths: list[int] = depths) -> Pricer:
            return limited(depths[number], seed=seed)

        shallow = share(
            problems,
            pricer=pricer,
            start=[routed.no_deeper(p, pool, d) for p, pool, d in zip(problems, pools, depths, strict=True)],
            known_bound=shared.bound,
            known_prices=shared.prices,
            tolerance=routed.TOLERANCE,
            seed=seed,
            stop=over,
        )
        pools = [Columns.join([pool, part.pool]) for pool, part in zip(pools, shallow.parts, strict=True)]
        found.append(_timed(problems, shallow, everyone, launch_ns))
    return found


def _timed(problems: Sequence[Problem], shared: Shared, everyone: Routes, launch_ns: float) -> list[Draft]:
    """Schedules of all groups, with the common number of segments that is best together."""
    drafts = [routed.draft_of(p, part, launch_ns) for p, part in zip(problems, shared.parts, strict=True)]
    number = {device: rank for rank, device in enumerate(everyone.devices)}
    rounds, pairs, sizes = [], [], []
    for problem, draft in zip(problems, drafts, strict=True):
        here = np.array([number[device] for device in problem.routes.devices])
        transfers = draft.transfers
        rounds.append(transfers.round)
        pairs.append(here[transfers.src] * everyone.ranks + here[transfers.dst])
        sizes.append(draft.transfer_bytes(problem))
    union = replace(problems[0], routes=everyone)
    pipeline = timing.Pipeline(union, np.concatenate(rounds), np.concatenate(pairs), np.concatenate(sizes), launch_ns)
    segments, _ = pipeline.best()
    return [draft.with_segments(segments) for draft in drafts]


def _certify(problems: Sequence[Problem], prices: np.ndarray) -> Certificate:
    """The certificate of the link prices; its bound is recomputed from the lengths as they are written."""
    lengths = prices / problems[0].routes.topology.bytes_per_s
    lengths = lengths / max(lengths.max(initial=0.0), 1e-300)
    written = np.array([float(f"{length:.{DIGITS}g}") for length in lengths])
    certificate = Certificate("lengths", 0.0, lengths=written)
    parts = [(problem.routes, problem.demand) for problem in problems]
    return replace(certificate, bound_ns=float(proven_together_ns(certificate, parts) * (1 - SAFETY)))
