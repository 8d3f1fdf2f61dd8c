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
    crossing = problem.crossing
    load = np.zeros((depth, crossing.shape[1]))
    delay = np.zeros(len(length), dtype=np.int64)
    for path in np.lexsort((-sent, -length)).tolist():
        hops = crossing[columns.hops[columns.starts[path] : columns.starts[path + 1]]]
        links, added = hops.indices, hops.data * sent[path]
        round = np.repeat(np.arange(length[path]), np.diff(hops.indptr))
        tried = np.arange(depth - length[path] + 1)
        delay[path] = np.argmin(load[tried[:, None] + round, links] @ (added * weight[links]))
        np.add.at(load, (round + delay[path], links), added)
    return Timed(columns, path_rounds(columns) + np.repeat(delay, length))
