"""What is searched for, for how long, and what comes of it: shared by all objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from solver.apart import News
from solver.bound import Problem
from solver.exact.clock import Clock
from solver.exact.model import Model, check, fewest_rounds
from solver.schedule.draft import Draft
from synth.documents import Json
from synth.errors import DemandError, SolveError

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

    def to_document(self) -> dict[str, Json]:
        """As plans and answers show it; what is not known is null."""

        def known(value: float) -> float | None:
            return float(f"{value:.9g}") if np.isfinite(value) else None

        return {
            "objective": self.objective.value,
            "value": known(self.value),
            "bound": known(self.bound),
            "gap": known(self.gap),
            "proven": self.proven,
            "rounds": self.rounds,
            "chunks": self.chunks,
            "any_rounds": self.any_rounds,
            "symmetric": self.symmetric,
        }


Tell = Callable[[Objective, int, float, float], None]
"""Takes (objective, rounds, incumbent, bound) whenever more is known."""


def quiet(objective: Objective, rounds: int, incumbent: float, bound: float) -> None:
    """Tell nobody."""


class Infeasible(Exception):
    """No schedule does it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """What to search.

    Attributes:
        problem: what moves.
        rounds: most rounds; None for as many as may help.
        chunks: equal parts that every block is cut in.
        clock: says when to stop.
        seed: for HiGHS.
        tell: hears of progress.
    """

    problem: Problem
    rounds: int | None = None
    chunks: int = 1
    clock: Clock
    seed: int = 0
    tell: Tell = quiet

    def first(self) -> int:
        """Rounds to begin with: data needs so many to arrive.

        Raises:
            DemandError: fewer were asked for, or the number of ranks is not served.
        """
        check(self.problem)
        fewest = max(fewest_rounds(self.problem), 1)
        if self.rounds is not None and self.rounds < fewest:
            raise DemandError(
                f"exact: {self.rounds} rounds are too few; data needs {fewest} to arrive", subject="rounds"
            )
        return fewest

    def model(self, rounds: int) -> Model:
        """The integer program of so many rounds, still without an objective.

        Raises:
            LimitError: it would be too large.
            Stopped: time is up.
        """
        return Model(self.problem, rounds=rounds, chunks=self.chunks, seed=self.seed, cancel=self.clock.over)

    def solve(self, model: Model, objective: Objective, wanted: Any, *, unit: float, floor: float, tell: Tell) -> Exact:
        """Minimise and read the schedule.

        Args:
            model: complete.
            objective: what is minimised.
            wanted: the linear expression for it.
            unit: of the expression, in those of the objective.
            floor: a bound that is known.
            tell: hears of progress.

        Raises:
            Infeasible: there is no such schedule.
        """

        def hear(news: News) -> None:
            tell(objective, model.rounds, news.objective * unit, max(news.bound * unit, floor))

        try:
            found = model.program.minimise(wanted, time_limit=self.clock.left, cancel=self.clock.cancelled, tell=hear)
        except SolveError as error:
            if "nfeasible" not in error.message:
                raise
            raise Infeasible from None
        draft = model.draft() if np.isfinite(found.objective) else None
        value = found.objective * unit
        bound = value if found.proven else max(found.bound * unit, floor)
        return self.exact(objective, model.rounds, draft=draft, value=value, bound=bound)

    def exact(self, objective: Objective, rounds: int, *, draft: Draft | None, value: float, bound: float) -> Exact:
        """An answer to this search."""
        return Exact(
            objective=objective,
            draft=draft,
            value=value,
            bound=min(bound, value),
            rounds=rounds,
            chunks=self.chunks,
            symmetric=self.problem.group is not None,
        )
