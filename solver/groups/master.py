"""Benders' master problem as an integer program, for when partitions are too many to list.

One variable per possible group says whether it is chosen; every cut of :mod:`solver.groups.exact` is one row.
"""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from solver.backend import IntegerProgram
from solver.groups.exact import CLOSE, Found, group_weights
from solver.groups.pricing import connected, price
from solver.groups.problem import Groups, Problem


def exact_by_integers(problem: Problem, start: Groups, *, time_limit: float = 60.0) -> Found:
    """The best partition, or the best found in time with the bound reached.

    Args:
        problem: few GPUs; every subset of ``size`` is one variable.
        start: a connected partition.
        time_limit: in seconds, asked between steps.
    """
    deadline = time.monotonic() + time_limit
    subsets = np.array(
        [
            group
            for group in combinations(range(len(problem.gpus)), problem.size)
            if connected(problem.routes.exists, group)
        ]
    )
    first = price(problem, start)
    best, seconds, bound, priced = start, first.seconds, 0.0, 1
    cuts = [first.lengths]
    while time.monotonic() < deadline:
        groups, proposed = _propose(problem, subsets, cuts)
        bound = max(bound, proposed)
        if bound >= seconds * (1 - CLOSE):
            break
        cost = price(problem, groups)
        priced += 1
        if cost.seconds < seconds:
            best, seconds = groups, cost.seconds
        cuts.append(cost.lengths)
    return Found(best, seconds, min(bound, seconds), priced)


def _propose(problem: Problem, subsets: np.ndarray, cuts: list[np.ndarray | None]) -> tuple[Groups, float]:
    program = IntegerProgram("groups")
    chosen = [program.whole(f"group_{number}") for number in range(len(subsets))]
    scale = problem.bytes / problem.topology.bytes_per_s.max()  # seconds are small numbers; HiGHS prefers about 1
    longest = program.real("longest")
    for gpu in range(len(problem.gpus)):
        program.require(program.total(chosen[s] for s in np.flatnonzero((subsets == gpu).any(axis=1))) <= 1)
    program.require(program.total(chosen) == problem.count)
    for lengths in cuts:
        if lengths is not None:
            weight = group_weights(problem, subsets, lengths) / scale
            fixed = float(lengths @ problem.background_bytes) / scale
            program.require(fixed + program.total(float(w) * x for w, x in zip(weight, chosen, strict=True)) <= longest)
    solution = program.minimise(longest)
    groups = tuple(
        tuple(int(gpu) for gpu in subset) for subset, x in zip(subsets, chosen, strict=True) if x.value() > 0.5
    )
    return tuple(sorted(groups)), solution.bound * scale
