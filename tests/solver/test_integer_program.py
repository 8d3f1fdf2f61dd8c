import math

import pytest

from solver.backend import IntegerProgram
from synth.errors import SolveError


def test_whole_numbers_are_whole():
    program = IntegerProgram("knapsack")
    items = [program.whole(f"x{i}") for i in range(5)]
    weights, values = [3, 4, 5, 8, 9], [3, 4, 4, 10, 11]
    program.require(program.total(w * x for w, x in zip(weights, items, strict=True)) <= 13)
    solution = program.minimise(program.total(-v * x for v, x in zip(values, items, strict=True)))
    assert solution.proven
    assert solution.objective == solution.bound == -15
    assert [round(x.value()) for x in items] == [0, 1, 0, 0, 1]


def test_continuous_models_have_their_optimum_as_bound():
    program = IntegerProgram("line")
    x = program.real("x", 0.25)
    assert program.minimise(2 * x).bound == pytest.approx(0.5)


def test_infeasible_models_are_said_to_be():
    program = IntegerProgram("empty")
    x = program.whole("x")
    program.require(x >= 2)
    with pytest.raises(SolveError, match="nfeasible"):
        program.minimise(1 * x)


def test_a_program_in_a_process_of_its_own_gives_the_same_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = []
    for cancel in (None, lambda: False):
        program = IntegerProgram("knapsack")
        items = [program.whole(f"x{i}") for i in range(5)]
        program.require(program.total(w * x for w, x in zip([3, 4, 5, 8, 9], items, strict=True)) <= 13)
        wanted = program.total(-v * x for v, x in zip([3, 4, 4, 10, 11], items, strict=True))
        solution = program.minimise(wanted, cancel=cancel)
        told.append((solution, [round(x.value()) for x in items]))
    assert told[0] == told[1]
    assert not list(tmp_path.iterdir())


def test_no_room_for_a_program_is_said(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    program = IntegerProgram("none")
    with pytest.raises(SolveError, match="process of its own"):
        program.minimise(program.whole("x") * 1, cancel=lambda: False)


def test_a_time_limit_is_not_called_optimal():
    program = IntegerProgram("hard")
    jobs = [(37 * i * i + 11 * i) % 97 + 20 for i in range(60)]
    assigned = [[program.whole(f"x{i}_{m}") for m in range(7)] for i in range(60)]
    longest = program.real("longest")
    for job in assigned:
        program.require(program.total(job) == 1)
    for machine in range(7):
        program.require(program.total(jobs[i] * assigned[i][machine] for i in range(60)) <= longest)
    solution = program.minimise(longest, time_limit=0.05)
    assert solution.proven or solution.objective > solution.bound
    assert math.isfinite(solution.bound)
