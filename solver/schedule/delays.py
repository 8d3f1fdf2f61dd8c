"""When each path of a pipeline starts, so that every link has as much to do in each round of a segment.

A link that is as busy in every round costs nothing while the pipeline fills and drains; one that has all its work in
the first round, as where every path starts at once, is the busiest link of many rounds before the others follow. Each
path in turn, the longest first, gets the delay at which its links have least to do so far. This is list scheduling,
after Graham, "Bounds on multiprocessing timing anomalies", 1969; the program of :mod:`solver.schedule.staged` does
better where it is not too large.
"""

from __future__ import annotations

import numpy as np

from solver.bound import Columns, Problem
from solver.schedule.timed import Timed
from solver.schedule.timing import path_rounds


def delayed(problem: Problem, columns: Columns, shares: np.ndarray) -> Timed:
    """Paths, none ending later than the longest does when it starts at once.

    Args:
        problem: routes and rates.
        columns: paths.
        shares: [columns] part of its commodity that takes each path.
    """
    length = np.diff(columns.starts)
    depth = int(length.max(initial=0))
    sent = problem.commodities.size[columns.commodity] * shares
    busy = columns.usage(problem).T @ shares
    weight = busy / max(float(busy.max(initial=0.0)), 1e-300)
    crossed = problem.crossing[columns.hops]
    first = crossed.indptr[columns.starts]  # of each path's links in what follows
    links = crossed.indices
    rounds = path_rounds(columns)
    round = np.repeat(rounds, np.diff(crossed.indptr))
    added = crossed.data * np.repeat(sent, np.diff(first))
    wanted = added * weight[links]
    load = np.zeros((depth, len(busy)))
    delay = np.zeros(len(length), dtype=np.int64)
    for path in np.lexsort((-sent, -length)).tolist():
        mine = slice(first[path], first[path + 1])
        tried = np.arange(depth - length[path] + 1)
        delay[path] = np.argmin(load[tried[:, None] + round[mine], links[mine]] @ wanted[mine])
        np.add.at(load, (round[mine] + delay[path], links[mine]), added[mine])
    return Timed(columns, rounds + np.repeat(delay, length))
