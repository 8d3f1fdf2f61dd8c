"""What strategies make: a schedule without its certificate, and what they are given to make it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from solver.backend import Cancel
from solver.bound import Fractional, Problem
from solver.schedule.timing import Pipeline
from synth.collective import Collective
from synth.documents import Json
from synth.plan import Chunks, Plan, Symmetry, Transfers
from synth.plan.sizes import chunk_bytes
from synth.simulator import Cost, simulate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What to schedule and how it is judged.

    Attributes:
        problem: routes and demand.
        fractional: the best use of the links.
        cost: cost model that decides.
        launch_ns: cost of starting one round.
        seed: for every random choice.
        deadline: ``time.monotonic()`` at which to stop.
        cancel: asked now and then whether to stop with what there is.
        progress: told what is going on.
    """

    problem: Problem
    fractional: Fractional
    cost: Cost
    launch_ns: float
    seed: int
    deadline: float
    cancel: Cancel
    progress: Callable[[str], None]

    @property
    def over(self) -> bool:
        """Whether time is up or somebody asked to stop."""
        return time.monotonic() > self.deadline or self.cancel()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A schedule that is not yet a plan.

    Attributes:
        chunks: what travels.
        transfers: how, in the document's order.
        denominator: of the chunks' shares.
        segments: parts every chunk is cut in.

        notes: more to say about it, for the plan's ``solver`` entry.
        whole: chunks and transfers are complete; otherwise, where the problem has a group of symmetries, they are those
            of one representative per orbit.
    """

    chunks: Chunks
    transfers: Transfers
    denominator: int
    segments: int = 1
    whole: bool = False
    notes: Mapping[str, Json] = field(default_factory=dict)
    _priced: dict[tuple[Cost, float], float] = field(default_factory=dict, init=False, repr=False)

    def with_segments(self, segments: int) -> Draft:
        """The same routes and rounds with another number of segments."""
        return replace(self, segments=segments)

    def plan(self, problem: Problem) -> Plan:
        """The bare plan: no certificate, nothing predicted."""
        demand, routes = problem.demand, problem.routes
        return Plan(
            collective=demand.collective,
            root=demand.root,
            ranks=routes.devices,
            helpers=routes.ranks - demand.ranks,
            topology=routes.topology.fingerprint,
            segments=self.segments,
            denominator=self.denominator,
            chunks=self.chunks,
            transfers=self.transfers,
            demand=demand.matrix,
            symmetry=None if self.whole or problem.listed is None else Symmetry.of(problem.listed),
        )

    def pipeline(self, problem: Problem, launch_ns: float) -> Pipeline:
        """The rounds model of this schedule."""
        if self.whole or problem.listed is None:
            problem = problem.plain
        transfers = self.transfers
        pair = transfers.src * problem.routes.ranks + transfers.dst
        return Pipeline(problem, transfers.round, pair, self.transfer_bytes(problem), launch_ns)

    def transfer_bytes(self, problem: Problem) -> np.ndarray:
        """[transfers] bytes of the whole chunk, with those of its images where the problem has symmetries."""
        size: np.ndarray = chunk_bytes(self.plan(problem), problem.demand)[self.transfers.chunk]
        return size if problem.listed is None else size * problem.listed.order

    def events(self, problem: Problem) -> int:
        """Segment-transfers in all."""
        images = 1 if self.whole or problem.listed is None else problem.listed.order
        return len(self.transfers) * images * self.segments

    def seconds(self, task: Task) -> float:
        """What the task's cost model says; asked again for the same problem, it knows."""
        key = (task.cost, task.launch_ns)
        if key not in self._priced:
            self._priced[key] = self._price(task)
        return self._priced[key]

    def _price(self, task: Task) -> float:
        problem = task.problem
        if task.cost is Cost.ROUNDS:
            return self.pipeline(problem, task.launch_ns).seconds(self.segments)
        plan = self.plan(problem)
        return simulate(plan, problem.routes.topology, problem.demand, cost=task.cost, routes=problem.routes).seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to schedule, with what it can do.

    Attributes:
        name: as it appears in plans and reports.
        collectives: those it knows.
        needs_all_pairs: whether every pair of ranks must have a route.
        fits: what else it needs of a problem.
        drafts: makes schedules, better ones later; stops when the task is over.
        baseline: whether others are compared with it.
        by_name: whether it is tried only where it is asked for by name.
    """

    name: str
    collectives: frozenset[Collective]
    needs_all_pairs: bool
    drafts: Callable[[Task], Iterator[Draft]]
    fits: Callable[[Problem], bool] = lambda problem: True
    baseline: bool = False
    by_name: bool = False

    def serves(self, problem: Problem) -> bool:
        """Whether it can schedule this problem at all."""
        if problem.demand.collective not in self.collectives:
            return False
        members = problem.demand.ranks
        exists = problem.routes.exists[:members, :members] | np.eye(members, dtype=bool)
        return (not self.needs_all_pairs or bool(exists.all())) and self.fits(problem)
