"""The optimal placement of a small layer, by integer programming: what bounds and heuristics are measured against.

For every expert e and number of copies k one variable says whether e has k copies, and for every rank how many of
those it holds; a rank's load is then linear. Grows with experts x copies x ranks: for tests and very small layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.backend import IntegerProgram
from solver.placement.problem import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """What the integer program found.

    Attributes:
        highest: highest rank load.
        bound: no placement is below this; equal to ``highest`` when proven.
        proven: whether the search ended by itself.
        phy2log: [slots] the placement.
    """

    highest: float
    bound: float
    proven: bool
    phy2log: np.ndarray


def variables(shape: Shape) -> int:
    """How many integer variables :func:`optimum` needs for a layer."""
    return shape.experts * (shape.slots - shape.experts + 1) * (shape.ranks + 1)


def optimum(loads: np.ndarray, shape: Shape, *, time_limit: float | None = None) -> Optimum:
    """Place one layer optimally.

    Args:
        loads: [experts].
        shape: sizes; whole groups stay in one node where groups divide by nodes.
        time_limit: in seconds.
    """
    program = IntegerProgram("placement")
    experts, ranks, room = shape.experts, shape.ranks, shape.slots_per_rank
    most = shape.slots - experts + 1
    copies = range(1, most + 1)
    has = [[program.whole(f"has_{e}_{k}") for k in copies] for e in range(experts)]
    held = [
        [[program.whole(f"held_{e}_{k}_{r}", 0, min(k, room)) for r in range(ranks)] for k in copies]
        for e in range(experts)
    ]
    for e in range(experts):
        program.require(program.total(has[e]) == 1)
        for k in copies:
            program.require(program.total(held[e][k - 1]) == k * has[e][k - 1])
    highest = program.real("highest")
    for r in range(ranks):
        cells = [(e, k, held[e][k - 1][r]) for e in range(experts) for k in copies]
        program.require(program.total(cell for _, _, cell in cells) == room)
        program.require(program.total(float(loads[e]) / k * cell for e, k, cell in cells) <= highest)
    if shape.grouped and shape.nodes > 1:
        _keep_groups(program, held, shape)
    solution = program.minimise(highest, time_limit=time_limit)
    table = [
        e for r in range(ranks) for e in range(experts) for k in copies for _ in range(round(held[e][k - 1][r].value()))
    ]
    return Optimum(solution.objective, solution.bound, solution.proven, np.array(table, dtype=np.int64))


def _keep_groups(program: IntegerProgram, held: list[list[list[Any]]], shape: Shape) -> None:
    """A rank holds an expert only where the node of the rank has the expert's whole group."""
    size = shape.experts // shape.groups
    lives = [[program.whole(f"lives_{g}_{n}") for n in range(shape.nodes)] for g in range(shape.groups)]
    for g in range(shape.groups):
        program.require(program.total(lives[g]) == 1)
    for n in range(shape.nodes):
        program.require(program.total(lives[g][n] for g in range(shape.groups)) == shape.groups // shape.nodes)
    for e, by_copies in enumerate(held):
        for cells in by_copies:
            for r, cell in enumerate(cells):
                program.require(cell <= shape.slots_per_rank * lives[e // size][r // shape.ranks_per_node])


def packing_optimum(group_loads: np.ndarray, nodes: int) -> float:
    """The lightest possible heaviest node when whole groups are packed, equally many in each node."""
    program = IntegerProgram("packing")
    groups = len(group_loads)
    lives = [[program.whole(f"lives_{g}_{n}") for n in range(nodes)] for g in range(groups)]
    heaviest = program.real("heaviest")
    for g in range(groups):
        program.require(program.total(lives[g]) == 1)
    for n in range(nodes):
        program.require(program.total(lives[g][n] for g in range(groups)) == groups // nodes)
        program.require(program.total(float(group_loads[g]) * lives[g][n] for g in range(groups)) <= heaviest)
    return program.minimise(heaviest).objective


def split_optimum(loads: np.ndarray, shape: Shape) -> float:
    """The fractional optimum of one node: experts split at will over the ranks that hold them, slots limited.

    No placement, however copies share their load, has a highest rank load below this.
    """
    program = IntegerProgram("split")
    ranks = range(shape.ranks)
    here = [[program.whole(f"here_{e}_{r}") for r in ranks] for e in range(shape.experts)]
    part = [[program.real(f"part_{e}_{r}") for r in ranks] for e in range(shape.experts)]
    highest = program.real("highest")
    for e, load in enumerate(loads.tolist()):
        program.require(program.total(part[e]) == float(load))
        program.require(program.total(here[e]) >= 1)
        for r in ranks:
            program.require(part[e][r] <= float(load) * here[e][r])
    for r in ranks:
        program.require(program.total(here[e][r] for e in range(shape.experts)) <= shape.slots_per_rank)
        program.require(program.total(part[e][r] for e in range(shape.experts)) <= highest)
    return program.minimise(highest).objective
