"""The routing with the best worst case over all matrices of a hose, as one linear program of polynomial size.

    minimise T   subject to   shares of each pair's routes sum to 1,
                              for every link: what the worst matrix keeps it busy for <= T

The worst matrix of a link is an optimum of a transportation problem, whose dual has a price for what each rank sends
and one for what each receives. With these in its place, the program is finite:

    for every link:            sum (send x its price) + sum (receive x its price) <= T
    for every link and pair:   seconds a byte of the pair keeps the link busy <= price of its sender + of its receiver

Sources: Azar, Cohen, Fiat, Kaplan and Raecke, "Optimal oblivious routing in polynomial time", 2003; Applegate and
Cohen, "Making intra-domain routing robust to changing and uncertain traffic demands", 2003; for the hose: Kodialam,
Lakshman and Sengupta, "Traffic-oblivious routing in the hose model", 2011. Routes are generated as they are needed: the
prices of the last rows are, link by link, a matrix times a price of the link, and what all pairs pay under them bounds
every routing from below.

With symmetries one pair and one link of each orbit stand for all: averaging a routing over them is never worse.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from solver.backend import INFINITY, Cancel, LinearProgram, Stopped
from solver.bound import Columns, Problem
from solver.oblivious.hose import Hose
from solver.oblivious.paths import cheapest_each
from solver.oblivious.pool import Pool
from solver.oblivious.table import Table
from synth.units import format_seconds

TOLERANCE = 2e-3
MOST_STEPS = 200
PATIENCE = 60
"""The search ends when so many steps in a row bring hardly anything, whatever is proven by then."""
SMOOTHING = 0.3
MOST_RELAYED = 4000
"""Routes over every rank as a relay are there from the beginning where they are at most so many."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oblivious:
    """A routing and what it guarantees.

    Attributes:
        columns: routes with a share above zero.
        shares: [columns] part of its commodity that takes each route.
        worst_seconds: the busiest link's time under its worst matrix.
        bound_seconds: no routing that is fixed beforehand has less.
    """

    columns: Columns
    shares: np.ndarray
    worst_seconds: float
    bound_seconds: float


def best_worst_case(
    problem: Problem,
    hose: Hose,
    *,
    start: Columns | None = None,
    known_bound: float = 0.0,
    deadline: float = float("inf"),
    seed: int = 0,
    cancel: Cancel = lambda: False,
    progress: Callable[[str], None] = lambda line: None,
) -> Oblivious:
    """Find it.

    Args:
        problem: an alltoall; with symmetries, one that fixes no rank.
        hose: what matrices may be, as symmetric as the problem.
        start: routes to begin with.
        known_bound: seconds that no routing guarantees less than, as far as that is known.
        deadline: ``time.monotonic()`` at which to stop with the best so far.
        seed: for HiGHS.
        cancel: asked now and then whether to stop.
        progress: told about every step.
    """

    def stop() -> bool:
        return time.monotonic() > deadline or cancel()

    table = Table(problem)
    root, end = problem.commodities.root, problem.commodities.end
    square = (len(table.links), table.ranks, table.ranks)
    steady = np.broadcast_to(hose.middle() / len(table.links), square)
    pool = Pool(table)
    for columns in (cheapest_each(table.prices(steady), root, end)[0], _relayed(problem), start or Columns.none()):
        pool.add(columns)
    shares = np.bincount(pool.columns.commodity, minlength=len(root))[pool.columns.commodity] ** -1.0
    worst, bound, smoothing, idle = float("inf"), 0.0, SMOOTHING, 0  # the bound is that of the steady prices
    with suppress(Stopped):
        for step in range(MOST_STEPS):
            before = worst
            shares, worst, traffic = _master(table, hose, pool, seed, stop)
            progress(f"step {step}: worst case {format_seconds(worst)}, bound {format_seconds(bound)}")
            idle = 0 if worst < before * (1 - TOLERANCE / 4) else idle + 1
            if worst <= max(bound, known_bound) * (1 + TOLERANCE) or idle > PATIENCE or stop():
                break
            tried = smoothing * steady + (1 - smoothing) * traffic
            columns, paid = cheapest_each(table.prices(tried), root, end)
            if paid.sum() > bound:
                bound, steady = float(paid.sum()), tried
            if pool.add(columns):
                smoothing = SMOOTHING
            elif smoothing == 0.0:
                break
            else:
                smoothing = 0.0
    used = np.flatnonzero(shares > 1e-9)
    loads = table.spread(pool.weights[used], shares[used])
    return Oblivious(
        columns=pool.columns.take(used),
        shares=shares[used],
        worst_seconds=hose.worst_of(loads)[0],
        bound_seconds=max(bound, known_bound),
    )


def _relayed(problem: Problem) -> Columns:
    """Routes of one and two hops: with them, most pairs have a price on most links from the beginning."""
    ranks, exists = problem.routes.ranks, problem.routes.exists
    if problem.group is None or len(problem.commodities) * ranks > MOST_RELAYED:
        return Columns.none()
    commodity, middle = (axis.ravel() for axis in np.indices((len(problem.commodities), ranks)))
    root, end = problem.commodities.root[commodity], problem.commodities.end[commodity]
    direct = (middle == end) & exists[root, end]
    over = (middle != root) & (middle != end) & exists[root, middle] & exists[middle, end]
    kept = np.flatnonzero(direct | over)
    hops = np.stack([root * ranks + middle, middle * ranks + end], axis=1)[kept]
    taken = np.stack([np.ones(len(kept), dtype=bool), over[kept]], axis=1)
    rows = np.broadcast_to(np.arange(len(kept))[:, None], hops.shape)
    return Columns.gather(commodity[kept], rows[taken], hops[taken])


def _master(table: Table, hose: Hose, pool: Pool, seed: int, stop: Cancel) -> tuple[np.ndarray, float, np.ndarray]:
    """Solve the program over the routes so far.

    Returns:
        ([columns] shares, its worst case in seconds, [rows, ranks, ranks] price of a second of each link times the
        bytes of its worst matrix).
    """
    weights, commodity = pool.weights, pool.columns.commodity
    ranks, links, count = table.ranks, len(table.links), len(commodity)
    scale = max(float(weights.data.max(initial=0.0)), 1e-300)
    largest = max(float(hose.send.max()), float(hose.receive.max()), 1e-300)
    places = np.unique(weights.indices)
    link, pair = places // ranks**2, places % ranks**2
    busy = sparse.csr_matrix(weights[:, places] / scale).T
    ends = [link * ranks + pair // ranks, links * ranks + link * ranks + pair % ranks]
    relief = sparse.csr_matrix(
        (np.full(2 * len(places), -1.0), (np.tile(np.arange(len(places)), 2), np.concatenate(ends))),
        shape=(len(places), 2 * links * ranks),
    )
    limits = [np.kron(np.eye(links), share[None] / largest) for share in (hose.send, hose.receive)]
    one = sparse.csr_matrix((np.ones(count), (commodity, np.arange(count))))
    blocks: Any = [
        [None, relief, busy],
        [np.full((links, 1), -1.0), np.concatenate(limits, axis=1), None],
        [None, None, one],
    ]
    matrix = sparse.csc_matrix(sparse.bmat(blocks))
    rows = len(places) + links
    upper = np.concatenate([np.zeros(rows), np.ones(one.shape[0])])
    lower = np.concatenate([np.full(rows, -INFINITY), np.ones(one.shape[0])])
    program = LinearProgram(lower, upper, seed=seed)
    costs = np.zeros(matrix.shape[1])
    costs[0] = 1.0
    program.add(costs, matrix.indptr, matrix.indices, matrix.data)
    solution = program.solve(stop)
    traffic = np.zeros(links * ranks**2)
    traffic[places] = np.maximum(-solution.duals[: len(places)], 0.0) * largest
    return (
        solution.columns[1 + 2 * links * ranks :],
        float(solution.objective * scale * largest),
        traffic.reshape(links, ranks, ranks),
    )
