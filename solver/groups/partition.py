"""Choosing the groups: complete search for few GPUs, cells and swaps for many, always against the baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.groups.bound import cell_bound, cut_bound, price_bound
from solver.groups.cells import Cells
from solver.groups.exact import MOST_PARTITIONS, exact, partitions_count
from solver.groups.master import exact_by_integers
from solver.groups.pricing import Price, price
from solver.groups.problem import Groups, Problem, canonical, contiguous, strided, unreachable
from solver.groups.remix import remix
from solver.groups.swaps import improve
from synth.collective.cheapest import shortest_paths

MOST_EXACT = 16
"""GPUs up to which the search is complete."""
MOST_JOINT = 128
"""GPUs up to which all groups are priced by one linear program."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The groups and how good they are.

    Attributes:
        groups: positions in ``problem.gpus``.
        seconds: until the slowest group's alltoall is done, all running at once.
        bound: no partition is faster.
        baselines: seconds of the contiguous and the strided partition; infinite where they cut a group apart.
        termination: ``optimal`` when seconds and bound agree, otherwise ``heuristic``.
    """

    groups: Groups
    seconds: float
    bound: float
    baselines: dict[str, float]
    termination: str


def partition(problem: Problem) -> Partition:
    """Cut the GPUs into groups.

    Raises:
        Infeasible: no partition keeps every group connected.
    """
    total, size = len(problem.gpus), problem.size
    baselines = {"contiguous": contiguous(total, size), "strided": strided(total, size)}
    if total <= MOST_EXACT:
        costs = {name: price(problem, groups).seconds for name, groups in baselines.items()}
        groups, seconds, bound = _search(problem, baselines, costs)
    elif total <= MOST_JOINT:
        groups, seconds, bound, costs = _joint(problem, baselines)
    else:
        cells = Cells(problem)
        candidates = {**baselines, "cells": by_cells(problem, cells)}
        costs = {name: cells.seconds(groups) for name, groups in candidates.items()}
        best = _cheapest(problem, candidates, costs)
        groups, seconds, bound = candidates[best], costs[best], max(cut_bound(problem), cell_bound(problem, cells))
        del costs["cells"]
    if not np.isfinite(seconds):
        raise unreachable(problem)
    bound = min(bound, seconds)
    done = bound >= seconds * (1 - 1e-6)
    return Partition(groups, seconds, bound, costs, "optimal" if done else "heuristic")


def _search(problem: Problem, baselines: dict[str, Groups], costs: dict[str, float]) -> tuple[Groups, float, float]:
    best = _cheapest(problem, baselines, costs)
    floor = max(cut_bound(problem), cell_bound(problem, Cells(problem)))
    if costs[best] <= floor * (1 + 1e-9):
        return baselines[best], costs[best], floor
    start = baselines[best] if np.isfinite(costs[best]) else None
    if partitions_count(len(problem.gpus), problem.size) > MOST_PARTITIONS and start is not None:
        found = exact_by_integers(problem, start)
    else:
        complete = exact(problem, start)
        if complete is None:
            raise unreachable(problem)
        found = complete
    return found.groups, found.seconds, found.bound


def _joint(problem: Problem, baselines: dict[str, Groups]) -> tuple[Groups, float, float, dict[str, float]]:
    cells = Cells(problem)
    candidates = {**baselines, "cells": by_cells(problem, cells), **by_distance(problem)}
    prices: dict[str, Price] = {name: price(problem, groups) for name, groups in candidates.items()}
    best = _cheapest(problem, candidates, {name: cost.seconds for name, cost in prices.items()})
    groups, cost = candidates[best], prices[best]
    floor = max(cut_bound(problem), cell_bound(problem, cells))
    if floor < cost.seconds * (1 - 1e-6) and np.isfinite(cost.seconds):
        groups, cost = improve(problem, groups, cost)
        mixed = remix(problem, groups)
        new = cost if mixed == groups else price(problem, mixed)
        if new.seconds < cost.seconds:
            groups, cost = mixed, new
    if cost.lengths is not None:
        floor = max(floor, price_bound(problem, cost.lengths))
    return groups, cost.seconds, floor, {name: prices[name].seconds for name in baselines}


def _cheapest(problem: Problem, candidates: dict[str, Groups], costs: dict[str, float]) -> str:
    """Of those that are as good as the best, the first with the fewest groups that span nodes."""
    least = min(costs.values())
    equal = [name for name, cost in costs.items() if cost <= least * (1 + 1e-9)]
    node = [problem.topology.device(gpu).node for gpu in problem.gpus]
    return min(equal, key=lambda name: sum(len({node[gpu] for gpu in group}) > 1 for group in candidates[name]))


def by_cells(problem: Problem, cells: Cells) -> Groups:
    """Groups inside cells as far as they fill them; the rest in the order of the cells, odd cells last."""
    size = problem.size
    common = np.bincount(cells.kind_of)
    order = sorted(range(len(cells.members)), key=lambda c: (-common[cells.kind_of[c]], cells.attached[c], c))
    inside: dict[int, Groups] = {}
    groups: list[tuple[int, ...]] = []
    rest: list[int] = []
    for cell in order:
        members = cells.members[cell]
        if len(members) >= size and len(cells.members) > 1:
            kind = cells.kind_of[cell]
            if kind not in inside:
                inside[kind] = _inside(problem, cells, cell)
            groups += [tuple(members[i] for i in group) for group in inside[kind]]
            used = {i for group in inside[kind] for i in group}
            rest += [gpu for i, gpu in enumerate(members) if i not in used]
        else:
            rest += members
    groups += [tuple(rest[start : start + size]) for start in range(0, len(rest) - size + 1, size)]
    return canonical(groups)


def _inside(problem: Problem, cells: Cells, cell: int) -> Groups:
    """Groups of one cell, as positions among its GPUs."""
    members = cells.members[cell]
    topology, _ = cells.part([cell])
    small = Problem(
        topology=topology,
        gpus=tuple(problem.gpus[gpu] for gpu in members),
        size=problem.size,
        bytes=problem.bytes,
    )
    if len(members) > MOST_EXACT:
        return contiguous(len(members), problem.size)
    start = contiguous(len(members), problem.size)
    found = exact(small, start) if partitions_count(len(members), problem.size) <= MOST_PARTITIONS else None
    return start if found is None else found.groups


def by_distance(problem: Problem) -> dict[str, Groups]:
    """Groups grown by distance, once over paths and once over direct routes only."""
    hops = problem.routes.hop_weights(1.0 / problem.topology.bytes_per_s)
    return {"near": _grow(problem, shortest_paths(hops)), "joined": _grow(problem, hops)}


def _grow(problem: Problem, far: np.ndarray) -> Groups:
    """Grow groups one by one from the most remote GPU left, always taking the GPU nearest to the group."""
    far = np.where(np.isfinite(far), far, far[np.isfinite(far)].sum())
    far = far + far.T
    left = np.ones(len(far), dtype=bool)
    groups = []
    for _ in range(problem.count):
        remote = np.where(left, far[:, left].sum(axis=1), -1.0)
        group = [int(remote.argmax())]
        left[group] = False
        while len(group) < problem.size:
            nearest = int(np.where(left, far[:, group].sum(axis=1), np.inf).argmin())
            group.append(nearest)
            left[nearest] = False
        groups.append(tuple(group))
    return canonical(groups)
