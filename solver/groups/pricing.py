"""The time of a partition: all groups' alltoalls at once, over the best routes inside each group.

A linear program over flows: every rank is the source of one commodity that leaves one block at each other rank of its
group, along hops between members. Links are shared by all groups. Its link prices (lengths) bound the time of *every*
partition from below, which is what the exact search is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.backend import LinearProgram
from solver.groups.problem import Groups, Problem
from synth.topology import Routes

MOST_FLOWS = 60_000
"""Above this many flow variables a partition is priced by its direct routes instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """What a partition costs.

    Attributes:
        seconds: until the slowest group is done; infinite where a group is not connected.
        lengths: [links] price of each link, zero where not binding, with sum(lengths x bytes_per_s) = 1; None without
            a linear program.
        loads: [links] bytes that the groups put on each link; None where a group is not connected.
    """

    seconds: float
    lengths: np.ndarray | None
    loads: np.ndarray | None


def price(problem: Problem, groups: Groups) -> Price:
    """Price a partition of ``problem.gpus``."""
    return price_on(problem.routes, groups, problem.block, problem.background_bytes)


def price_on(
    routes: Routes,
    groups: Groups,
    block: float,
    background: np.ndarray | None = None,
    *,
    most_flows: int = MOST_FLOWS,
) -> Price:
    """Price groups of ranks of these routes.

    Args:
        routes: among the ranks.
        groups: rank numbers.
        block: bytes from each rank to each other of its group.
        background: [links] bytes that cross each link anyway.
        most_flows: above so many flow variables direct routes are priced, where every pair has one.
    """
    if not all(connected(routes.exists, group) for group in groups):
        return Price(float("inf"), None, None)
    flows = sum(len(group) ** 2 * (len(group) - 1) for group in groups)
    if flows > most_flows and all(_complete(routes.exists, group) for group in groups):
        load = direct_bytes(routes, groups, block)
        busy = load if background is None else load + background
        return Price(float((busy / routes.topology.bytes_per_s).max(initial=0.0)), None, load)
    return _flow(routes, groups, block, background)


def connected(exists: np.ndarray, group: Sequence[int]) -> bool:
    """Whether hops among the members join every member to every other."""
    inside = exists[np.ix_(group, group)]
    reach = np.eye(len(group), dtype=bool)
    for _ in range(len(group)):
        wider = reach | (reach @ inside)
        if (wider == reach).all():
            break
        reach = wider
    return bool(reach.all())


def _complete(exists: np.ndarray, group: Sequence[int]) -> bool:
    return int(exists[np.ix_(group, group)].sum()) == len(group) * (len(group) - 1)


def pairs_of(groups: Groups, ranks: int) -> np.ndarray:
    """Ordered pairs inside the groups as ``a * ranks + b``."""
    return np.array([a * ranks + b for group in groups for a in group for b in group if a != b], dtype=np.int64)


def direct_bytes(routes: Routes, groups: Groups, block: float) -> np.ndarray:
    """[links] bytes when every block takes its direct route."""
    _, links = routes.incidence(pairs_of(groups, routes.ranks))
    return np.bincount(links, minlength=len(routes.topology.links)) * block


def _flow(routes: Routes, groups: Groups, block: float, background: np.ndarray | None) -> Price:
    source, tail, head = _hops(routes.exists, groups)
    ranks = routes.ranks
    pair_row = np.full((ranks, ranks), -1)
    pairs = pairs_of(groups, ranks)
    pair_row.ravel()[pairs] = np.arange(len(pairs))
    column, link = routes.incidence(tail * ranks + head)
    used, row = np.unique(link, return_inverse=True)
    rates = routes.topology.bytes_per_s[used]
    scale = rates.max()
    idle = np.zeros(len(used)) if background is None else background[used] / block
    program = LinearProgram(
        np.concatenate([np.ones(len(pairs)), np.full(len(used), -np.inf)]),
        np.concatenate([np.full(len(pairs), np.inf), -idle]),
    )
    onward = tail != source  # what leaves a rank that is not the source was received there before
    columns = np.concatenate([np.arange(len(source)), np.flatnonzero(onward), column])
    rows = np.concatenate([pair_row[source, head], pair_row[source[onward], tail[onward]], len(pairs) + row])
    values = np.concatenate([np.ones(len(source)), -np.ones(int(onward.sum())), np.ones(len(column))])
    order = np.argsort(columns, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=len(source)))])
    program.add(np.zeros(len(source)), starts, rows[order], values[order])
    program.add(np.ones(1), np.array([0, len(used)]), len(pairs) + np.arange(len(used)), -rates / scale)
    solution = program.solve()
    lengths = np.zeros(len(routes.topology.links))
    lengths[used] = np.maximum(-solution.duals[len(pairs) :], 0.0) / scale
    loads = np.bincount(link, solution.columns[column], minlength=len(lengths)) * block
    return Price(float(solution.objective * block / scale), lengths, loads)


def _hops(exists: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, tail, head) of every hop each source's commodity may take; none leads back to the source."""
    parts = []
    for group in groups:
        members = np.array(group)
        tail, head = np.nonzero(exists[np.ix_(members, members)])
        source = np.repeat(np.arange(len(members)), len(tail))
        tail, head = np.tile(tail, len(members)), np.tile(head, len(members))
        keep = head != source
        parts.append((members[source[keep]], members[tail[keep]], members[head[keep]]))
    source, tail, head = (np.concatenate(column) for column in zip(*parts, strict=True))
    return source, tail, head
