"""The only file that knows HiGHS and PuLP, beside :mod:`solver.apart`, which runs HiGHS in a process of its own.

Column generation talks to a live HiGHS model, because adding columns to a solved model is what it does all day.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import highspy
import numpy as np
import pulp  # type: ignore[import-untyped, unused-ignore]

from solver import apart
from solver.apart import News
from synth.errors import SolveError

INFINITY = highspy.kHighsInf
INTERIOR = 12_000
"""A fresh program of more columns is solved by an interior point first; the simplex method takes it from there."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearSolution:
    """An optimum of a linear program.

    Attributes:
        objective: its value.
        columns: [columns] value of each.
        duals: [rows] dual price of each row.
        steps: of the simplex method; they count the same each time, as seconds do not.
    """

    objective: float
    columns: np.ndarray
    duals: np.ndarray
    steps: int


Cancel = Callable[[], bool]
"""Asked now and then by long solves: whether to stop with what there is."""


class Stopped(Exception):
    """A solve was told to give up; the caller keeps what it has."""


class LinearProgram:
    """A minimisation over columns of at least 0 that can grow while it is being solved.

    Args:
        lower: [rows] least activity of each row.
        upper: [rows] largest activity of each row.
        seed: for HiGHS's own random choices.
    """

    def __init__(self, lower: np.ndarray, upper: np.ndarray, *, seed: int = 0) -> None:
        self._model = _quiet_model(seed)
        self._stop: Cancel = lambda: False
        self._model.cbSimplexInterrupt += self._interrupt
        self._model.cbIpmInterrupt += self._interrupt
        empty = np.zeros(0, dtype=np.int32)
        self._model.addRows(
            len(lower), lower.astype(np.float64), upper.astype(np.float64), 0, empty, empty, np.zeros(0)
        )

    def add(
        self, costs: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray, *, most: float = INFINITY
    ) -> None:
        """Add columns given in compressed form.

        Args:
            costs: [columns] objective coefficient of each.
            starts: [columns + 1] where each column's entries begin.
            rows: [entries] row of each entry.
            values: [entries] its coefficient.
            most: upper limit of every new column.
        """
        count = len(costs)
        self._model.addCols(
            count,
            np.ascontiguousarray(costs, dtype=np.float64),
            np.zeros(count),
            np.full(count, most),
            len(values),
            np.ascontiguousarray(starts[:-1], dtype=np.int32),
            np.ascontiguousarray(rows, dtype=np.int32),
            np.ascontiguousarray(values, dtype=np.float64),
        )

    def reprice(self, column: int, cost: float) -> None:
        """Change the objective coefficient of a column."""
        self._model.changeColCost(column, cost)

    def _interrupt(self, event: Any) -> None:
        if self._stop():
            event.interrupt()

    def solve(self, stop: Cancel = lambda: False, *, most: int | None = None) -> LinearSolution:
        """Solve, from the last basis.

        Args:
            stop: asked during the solve whether to give up.
            most: simplex steps after which to give up.

        Raises:
            Stopped: it was told to give up.
            SolveError: the model is infeasible or HiGHS failed.
        """
        model = self._model
        self._stop = stop
        if most is not None:
            model.setOptionValue("simplex_iteration_limit", most)
        fresh = not model.getBasis().valid
        model.setOptionValue("solver", "ipm" if fresh and model.getNumCol() > INTERIOR else "choose")
        model.run()
        model.setOptionValue("simplex_strategy", 4)  # primal: new columns leave the last basis primal feasible
        status = model.getModelStatus()
        limits = (highspy.HighsModelStatus.kIterationLimit, highspy.HighsModelStatus.kInterrupt)
        # interrupted before its first step, HiGHS names no status at all
        if status in limits or (status != highspy.HighsModelStatus.kOptimal and stop()):
            raise Stopped
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolveError(f"the linear program ended as {model.modelStatusToString(status)}, not as optimal")
        solution, info = model.getSolution(), model.getInfo()
        return LinearSolution(
            objective=info.objective_function_value,
            columns=np.array(solution.col_value),
            duals=np.array(solution.row_dual),
            steps=info.simplex_iteration_count,
        )


@dataclass(frozen=True, slots=True)
class IntegerSolution:
    """What an integer program ended with.

    Attributes:
        proven: whether the objective is the optimum; otherwise time ran out.
        objective: of the best values found; infinite where none were.
        bound: no values do better than this.
    """

    proven: bool
    objective: float
    bound: float


class IntegerProgram:
    """A minimisation with whole numbers, modelled with PuLP and solved by HiGHS.

    Status and bound are read from HiGHS itself: PuLP 3 calls an incumbent at the time limit "Optimal".

    Args:
        name: of the model.
        seed: for HiGHS's own random choices.
    """

    def __init__(self, name: str, *, seed: int = 0) -> None:
        self._problem = pulp.LpProblem(name, pulp.LpMinimize)
        self._mixed = False
        self._seed = seed

    def whole(self, name: str, least: int = 0, most: int = 1) -> Any:
        """A variable that takes whole numbers; by default 0 or 1."""
        self._mixed = True
        return self._problem.add_variable(name, least, most, pulp.LpInteger)

    def real(self, name: str, least: float = 0.0) -> Any:
        """A continuous variable."""
        return self._problem.add_variable(name, least)

    def total(self, terms: Iterable[Any]) -> Any:
        """The sum of terms such as ``3 * x``, faster than adding one by one."""
        return pulp.lpSum(terms)

    def require(self, condition: Any) -> None:
        """Add a condition such as ``x + y <= 1``."""
        self._problem += condition

    def minimise(
        self,
        objective: Any,
        *,
        time_limit: float | None = None,
        cancel: Cancel | None = None,
        tell: Callable[[News], None] = lambda news: None,
    ) -> IntegerSolution:
        """Solve; the variables' ``value()`` gives the best found.

        Args:
            objective: a linear expression.
            time_limit: in seconds.
            cancel: asked all the time whether to stop with the best found; a program that asks is solved in a process
                of its own.
            tell: called whenever more is known, where ``cancel`` is given.

        Raises:
            SolveError: the model is infeasible or HiGHS failed.
        """
        _swallow_banner()
        self._problem += objective
        solver = pulp.HiGHS(msg=False, timeLimit=time_limit, gapRel=0.0, threads=1, random_seed=self._seed)
        if cancel is not None:
            return self._minimise_apart(solver, time_limit, cancel, tell)
        self._problem.solve(solver)
        model = self._problem.solverModel
        status, info = model.getModelStatus(), model.getInfo()
        stopped = status in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt)
        if status != highspy.HighsModelStatus.kOptimal and not stopped:
            raise SolveError(f"the integer program ended as {model.modelStatusToString(status)}, not as optimal")
        value = float(info.objective_function_value) if info.primal_solution_status else float("inf")
        return IntegerSolution(not stopped, value, float(info.mip_dual_bound) if self._mixed else value)

    def _minimise_apart(
        self, solver: Any, time_limit: float | None, cancel: Cancel, tell: Callable[[News], None]
    ) -> IntegerSolution:
        solver.createAndConfigureSolver(self._problem)
        solver.buildSolverModel(self._problem)
        model = self._problem.solverModel
        try:
            news = apart.solve(model, time_limit=time_limit, seed=self._seed, cancel=cancel, tell=tell)
        except OSError as error:
            raise SolveError(f"the integer program cannot be handed to a process of its own: {error}") from None
        if news.status not in ("Optimal", "Time limit reached", ""):
            raise SolveError(f"the integer program ended as {news.status}, not as optimal")
        problem: Any = self._problem
        variables = problem.exported_variables() if hasattr(problem, "exported_variables") else problem.variables()
        for column, variable in enumerate(variables):  # PuLP 4 and 3: in the order in which they gave HiGHS its columns
            variable.varValue = news.values.get(column, 0.0)
        return IntegerSolution(news.status == "Optimal", news.objective, news.bound)


def _quiet_model(seed: int) -> Any:
    _swallow_banner()
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", seed)
    return model


@cache
def _swallow_banner() -> None:
    """Make HiGHS print its banner now, into nothing: the first model of a process prints one whatever it is told."""
    sys.stdout.flush()
    kept = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        highspy.Highs()  # type: ignore[no-untyped-call]
        ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def versions() -> dict[str, str]:
    """Versions of the solvers behind a plan, for its document."""
    return {"highspy": version("highspy")}
