"""Neighbouring groups, two at a time, cut anew by complete search until no pair gets faster.

A swap that helps one of many equally slow groups does not show in the slowest time; here each pair is judged by itself.
"""

from __future__ import annotations

import numpy as np

from solver.groups.exact import exact, partitions_count
from solver.groups.pricing import price_on
from solver.groups.problem import Groups, Problem, canonical
from synth.collective.cheapest import shortest_paths

MOST_PARTITIONS = 7_000
MOST_WORK = 30_000
"""Partitions listed in all, over all pairs."""
NEIGHBOURS = 6


def remix(problem: Problem, start: Groups) -> Groups:
    """Improve pairs of groups; machines where a pair has too many partitions are left alone."""
    ways = partitions_count(2 * problem.size, problem.size)
    if ways > MOST_PARTITIONS or len(start) < 2 or problem.background is not None:
        return start
    budget = MOST_WORK // ways
    far = shortest_paths(problem.routes.hop_weights(1.0 / problem.topology.bytes_per_s))
    groups = list(start)
    stale: set[Groups] = set()
    costs = [_seconds(problem, (group,)) for group in groups]
    while budget > 0:
        found = False
        for first in sorted(range(len(groups)), key=lambda g: (-costs[g], g)):
            near = sorted(range(len(groups)), key=lambda g: (far[np.ix_(groups[first], groups[g])].mean(), g))
            for second in [g for g in near if g != first][:NEIGHBOURS]:
                pair = (groups[first], groups[second])
                if pair in stale or budget <= 0:
                    continue
                budget -= 1
                better = _cut_anew(problem, pair)
                if better is None:
                    stale.add(pair)
                    continue
                groups[first], groups[second] = better
                costs[first], costs[second] = (_seconds(problem, (group,)) for group in better)
                found = True
                break
            if found:
                break
        if not found:
            break
    return canonical(groups)


def _seconds(problem: Problem, groups: Groups) -> float:
    return price_on(problem.routes, groups, problem.block).seconds


def _cut_anew(problem: Problem, pair: Groups) -> Groups | None:
    union = sorted(pair[0] + pair[1])
    small = Problem(
        topology=problem.topology,
        gpus=tuple(problem.gpus[gpu] for gpu in union),
        size=problem.size,
        bytes=problem.bytes,
    )
    place = {gpu: position for position, gpu in enumerate(union)}
    start = canonical([tuple(place[gpu] for gpu in group) for group in pair])
    found = exact(small, start)
    if found is None or not found.seconds < _seconds(problem, pair) * (1 - 1e-6):
        return None
    return tuple(tuple(union[position] for position in group) for group in found.groups)
