"""From routes of one commodity per orbit to routes of every commodity, where a plan cannot state the symmetry.

A commodity whose images are all different hands its routes on as they are: the images load every link of an orbit
alike. One that all symmetries leave where it is shares its routes out evenly among their images, to the same end;
where there are too many, among some that are chosen one after another, each where it adds least to the busiest links.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from solver.bound import Columns, Problem
from solver.schedule.rounding import Whole

MOST = 128
"""A route of a commodity that stays in place is shared out among at most so many of its images."""
ELEMENTS = 256
"""They are chosen among those under so many elements of the group."""


def unfold(problem: Problem, routes: Whole) -> Whole:
    """Whole routes for ``problem.plain`` from those for a problem whose group fixes some ranks.

    Returns:
        the routes; ``kept`` stays in terms of the columns the given ones were rounded from.
    """
    group = problem.group
    assert group is not None
    columns, units, everywhere = routes.columns, routes.shares, _Everywhere(problem)
    in_place, alone = _in_place(problem, columns)
    free, shared = np.flatnonzero(~in_place), np.flatnonzero(in_place & ~alone)
    still = np.flatnonzero(alone)
    images = [_images(everywhere, columns.take(np.array([column])), group.elements) for column in shared.tolist()]
    finer = group.order if problem.paired else min(max((len(few) for few in images), default=1), MOST)
    parts = [everywhere.moved(columns.take(free), element) for element in group.elements]
    parts.append(everywhere.moved(columns.take(still), group.elements[0]))
    source = [np.tile(free, group.order), still]
    shares = [units[source[0]] * (1 if problem.paired else finer), units[still] * finer]
    load = np.zeros(len(problem.routes.topology.links))
    for column, few in zip(shared.tolist(), images, strict=True):
        parcels = _shared_out(_link_seconds(problem, few), int(units[column]) * finer, load)
        used = np.flatnonzero(parcels)
        parts.append(few.take(used))
        source.append(np.full(len(used), column))
        shares.append(parcels[used])
    return replace(
        routes,
        columns=Columns.join(parts),
        shares=np.concatenate(shares),
        denominator=routes.denominator * finer,
        kept=routes.kept[np.concatenate(source)],
    )


def _in_place(problem: Problem, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """([columns] whether no symmetry moves what they carry, [columns] whether none moves any of their hops either)."""
    assert problem.group is not None
    fixed, ranks = problem.group.fixed, problem.routes.ranks
    root, end = (side[columns.commodity] for side in (problem.commodities.root, problem.commodities.end))
    in_place = fixed[root] & ((end < 0) | fixed[end])
    hop_moves = ~(fixed[columns.hops // ranks] & fixed[columns.hops % ranks])
    row = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    return in_place, in_place & (np.bincount(row[hop_moves], minlength=len(columns)) == 0)


class _Everywhere:
    """Takes columns of a problem with symmetries to the same problem without."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        everything = problem.plain.commodities
        label = everything.root * (problem.routes.ranks + 1) + everything.end + 1
        self._order = np.argsort(label, kind="stable")
        self._label = label[self._order]

    def moved(self, columns: Columns, element: np.ndarray) -> Columns:
        """The images of columns under one element."""
        ranks, listed = self._problem.routes.ranks, self._problem.commodities
        hops = element[columns.hops // ranks] * ranks + element[columns.hops % ranks]
        padded = np.append(element, -1)  # an end of -1 stays
        root, end = padded[listed.root[columns.commodity]], padded[listed.end[columns.commodity]]
        if self._problem.paired:  # labelled by their root's in-tree, and there the commodities begin with one per rank
            return Columns(root, columns.starts, hops)
        return Columns(self._order[np.searchsorted(self._label, root * (ranks + 1) + end + 1)], columns.starts, hops)


def _images(everywhere: _Everywhere, column: Columns, elements: np.ndarray) -> Columns:
    """Different images of one column that stays in place, under elements spread evenly over the group."""
    ranks = elements.shape[1]
    if len(elements) > ELEMENTS:
        elements = elements[np.arange(ELEMENTS) * len(elements) // ELEMENTS]
    hops = elements[:, column.hops // ranks] * ranks + elements[:, column.hops % ranks]
    _, first = np.unique(np.sort(hops, axis=1), axis=0, return_index=True)
    return Columns.join([everywhere.moved(column, element) for element in elements[np.sort(first)]])


def _link_seconds(problem: Problem, columns: Columns) -> np.ndarray:
    """[columns, links] seconds that a byte along each column keeps each link busy."""
    rows = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    shape = (len(columns), problem.routes.ranks**2)
    hops = sparse.csr_matrix((np.ones(len(rows)), (rows, columns.hops)), shape=shape)
    return np.asarray((hops @ problem.plain.crossing).toarray())


def _shared_out(use: np.ndarray, parcels: int, load: np.ndarray) -> np.ndarray:
    """[images] how many of so many equal parcels take each image; adds what they load to ``load``.

    Every image takes as many as every other, but for a remainder, which goes where it adds least: to each image one.
    """
    count = len(use)
    taken = np.full(count, parcels // count)
    load += taken @ use
    for _ in range(parcels % count):
        after = np.where(use > 0, load + use, 0.0)
        busiest = after.max(axis=1)
        ready = taken == parcels // count
        best = int(np.lexsort(((after * use).sum(axis=1), busiest, ~ready))[0])
        taken[best] += 1
        load += use[best]
    return taken
