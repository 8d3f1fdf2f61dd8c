"""The routed strategy: the optimal fractional routes, rounded to whole shares, as a pipeline of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solver.bound import Columns, Fractional, Problem, Shape, generate
from solver.bound.pricing import cheapest
from solver.bound.shallow import farthest, limited
from solver.schedule import timing
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.ordering import ordered
from solver.schedule.polish import polish, route_rounds
from solver.schedule.rounding import Whole, whole
from solver.schedule.unfold import unfold
from synth.collective import Collective
from synth.plan import Chunks, Transfers
from synth.simulator import Cost

PATIENCE = 1
"""The search for the best depth ends after more depths than this that brought nothing."""
POLISHED = (1200, 400, 150)
"""So many columns are polished together; fewer where that makes too large a program."""
TOLERANCE = 4e-3
"""How close to the bound routes of limited depth are brought."""


def drafts(task: Task) -> Iterator[Draft]:
    """Pipelines of rounds; for the timeline model each also in a better order."""
    for draft in pipelines(task):
        yield draft
        if task.cost is Cost.TIMELINE:
            yield from ordered(task, draft)


def pipelines(task: Task) -> Iterator[Draft]:
    """The optimal routes, then optimal routes of limited depth, the shallowest first."""
    problem, fractional = task.problem, task.fractional
    first = draft_of(problem, fractional, task.launch_ns)
    yield first
    deepest = depth_of(first)
    depth, best, worse = farthest(problem), first.seconds(task), 0
    kept = (fractional, first.segments)
    pool = fractional.pool
    while depth < deepest and worse <= PATIENCE and not task.over:
        shallow = generate(
            problem,
            deadline=task.deadline,
            tolerance=TOLERANCE,
            seed=task.seed,
            pricer=limited(depth, seed=task.seed),
            start=no_deeper(problem, pool, depth),
            known_bound=fractional.bound,
            known_prices=fractional.prices,
            cancel=task.cancel,
        )
        pool = Columns.join([pool, shallow.pool])
        draft = draft_of(problem, shallow, task.launch_ns)
        yield draft
        seconds = draft.seconds(task)
        if seconds < best:
            best, kept, worse = seconds, (shallow, draft.segments), 0
        elif shallow.seconds <= fractional.seconds * (1 + 3 * TOLERANCE):  # depth no longer costs bandwidth
            worse += 1
        depth += max(1, depth // 3) if shallow.seconds > 1.2 * fractional.seconds else 1
    for most in POLISHED:
        columns = most_promising(problem, kept[0], most)
        found = polish(problem, columns, kept[1], seed=task.seed, stop=lambda: task.over)
        if found is not None:
            polished = replace(kept[0], columns=found.columns, shares=found.shares)
            yield draft_of(problem, polished, task.launch_ns, delay=found.delay)
            return


def most_promising(problem: Problem, fractional: Fractional, most: int) -> Columns:
    """The columns in use, and of the others those whose price is nearest to the cheapest of their commodity."""
    pool = fractional.pool
    if len(pool) <= most:
        return pool
    price = np.asarray(pool.usage(problem) @ fractional.prices).ravel()
    least = np.full(len(problem.commodities), np.inf)
    np.minimum.at(least, pool.commodity, price)
    excess = price / np.maximum(least[pool.commodity], 1e-300)
    others = Columns.join([fractional.columns, pool.take(np.sort(np.argsort(excess, kind="stable")[:most]))])
    keys = others.keys()
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    return others.take(np.array(sorted(first.values())))


def no_deeper(problem: Problem, columns: Columns, depth: int) -> Columns:
    """Those of the columns that are at most so deep."""
    if not len(columns):
        return columns
    rounds = np.zeros(len(columns), dtype=np.int64)
    shape = problem.commodities.shape[columns.commodity]
    for kind in Shape:
        mine = np.flatnonzero(shape == kind)
        part = columns.take(mine)
        if len(mine):
            rounds[mine] = np.maximum.reduceat(route_rounds(replace(problem, paired=False), part), part.starts[:-1])
    return columns.take(np.flatnonzero(rounds < depth))


def depth_of(draft: Draft) -> int:
    """Rounds of one segment."""
    return int(draft.transfers.round.max(initial=-1)) + 1


def draft_of(problem: Problem, fractional: Fractional, launch_ns: float, *, delay: np.ndarray | None = None) -> Draft:
    """The plan of one fractional solution, whose routes may begin some rounds later than they could."""
    routes = rounded(problem, fractional)
    if problem.group is not None and problem.listed is None:  # such symmetries cannot be stated in a plan
        routes, problem = unfold(problem, routes), problem.plain
    if delay is None or problem.paired:
        return pipeline(problem, routes, launch_ns)
    columns = routes.columns
    later = np.concatenate([delay, np.zeros(routes.kept.max(initial=0) + 1, dtype=np.int64)])[routes.kept]
    fixed = route_rounds(problem, columns) + np.repeat(later, np.diff(columns.starts))
    return pipeline(problem, routes, launch_ns, fixed=fixed)


def rounded(problem: Problem, fractional: Fractional) -> Whole:
    """Whole shares; commodities too small for the program join with a cheapest route."""
    columns, shares = fractional.columns, fractional.shares
    missing = np.setdiff1d(np.arange(len(problem.commodities)), problem.moving)
    if problem.paired:
        columns, shares = joined_at_roots(problem, columns, shares)
        if not len(problem.moving):
            columns = _halves_of_one_root(problem)
            shares = np.ones(1)
        return whole(problem, columns, shares, np.zeros(len(shares), dtype=np.int64))
    if len(missing):
        rest = _cheapest_for(problem, missing, fractional.prices)
        columns, shares = Columns.join([columns, rest]), np.concatenate([shares, np.ones(len(rest))])
    return whole(problem, columns, shares, columns.commodity)


def _cheapest_for(problem: Problem, commodities: np.ndarray, prices: np.ndarray) -> Columns:
    """A route of least price, then fewest hops, for commodities of (almost) no bytes."""
    everything = replace(problem, commodities=replace(problem.commodities, size=np.ones(len(problem.commodities))))
    columns, _ = cheapest(everything, prices)
    return columns.take(commodities)


def _halves_of_one_root(problem: Problem) -> Columns:
    """For an allreduce of no bytes: reduce to rank 0 and spread from it."""
    even = np.ones(problem.crossing.shape[1])
    both = _cheapest_for(problem, np.array([0, len(problem.commodities) // 2]), even)
    return Columns(np.zeros(1, dtype=np.int64), np.array([0, len(both.hops)]), both.hops)


def joined_at_roots(problem: Problem, columns: Columns, shares: np.ndarray) -> tuple[Columns, np.ndarray]:
    """Pair in-trees with out-trees of the same root: deep ones with shallow ones.

    Returns:
        (columns whose first ranks - 1 hops go in and the others out, labelled by the root's in-tree commodity; their
        shares, which sum to 1).
    """
    ranks = problem.routes.ranks
    shapes = problem.commodities.shape[columns.commodity]
    roots = problem.commodities.root[columns.commodity]
    depth = np.zeros(len(columns), dtype=np.int64)
    for shape, rounds in ((Shape.IN_TREE, timing.in_tree_rounds), (Shape.OUT_TREE, timing.out_tree_rounds)):
        mine = np.flatnonzero(shapes == shape)
        part = columns.take(mine)
        if len(mine):
            depth[mine] = np.maximum.reduceat(rounds(part, ranks), part.starts[:-1])
    hops, label, values = [], [], []
    for number, root in enumerate(problem.commodities.root[: len(problem.commodities) // 2].tolist()):
        inward = np.flatnonzero((roots == root) & (shapes == Shape.IN_TREE))
        outward = np.flatnonzero((roots == root) & (shapes == Shape.OUT_TREE))
        inward = inward[np.argsort(depth[inward], kind="stable")]
        outward = outward[np.argsort(-depth[outward], kind="stable")]
        for a, b, share in northwest(shares[inward], shares[outward]):
            pair = columns.take(np.array([inward[a], outward[b]]))
            hops.append(pair.hops)
            label.append(number)
            values.append(share)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in hops])]).astype(np.int64)
    total = np.array(values)
    joined = Columns(np.array(label, dtype=np.int64), starts, np.concatenate(hops or [np.zeros(0, dtype=np.int64)]))
    return joined, total / total.sum() if len(total) else total


def northwest(supply: np.ndarray, demand: np.ndarray) -> list[tuple[int, int, float]]:
    """Match two lists of shares greedily in order (the north-west corner rule)."""
    matched = []
    left, right = supply.astype(float).tolist(), demand.astype(float).tolist()
    a = b = 0
    while a < len(left) and b < len(right):
        share = min(left[a], right[b])
        if share > 1e-9:
            matched.append((a, b, share))
        left[a] -= share
        right[b] -= share
        if left[a] <= right[b]:
            a += 1
        else:
            b += 1
    return matched


def pipeline(problem: Problem, routes: Whole, launch_ns: float, *, fixed: np.ndarray | None = None) -> Draft:
    """Every hop as early as its route allows, or in fixed rounds, with the best number of segments."""
    columns, ranks, demand = routes.columns, problem.routes.ranks, problem.demand
    chunk = np.repeat(np.arange(len(columns)), np.diff(columns.starts))
    blocks = demand.blocks
    block = np.zeros(len(columns), dtype=np.int64) if problem.paired else problem.commodities.block[columns.commodity]
    reduce = np.full(len(chunk), int(demand.collective.reduces))
    if problem.paired:
        outward = np.arange(len(chunk)) - columns.starts[chunk] >= ranks - 1
        reduce[outward] = 0
    if fixed is not None:
        round = fixed
    elif problem.paired:
        round = _allreduce_rounds(columns, ranks, chunk, outward)
    elif demand.collective.reduces:
        round = timing.in_tree_rounds(columns, ranks)
    elif demand.collective in (Collective.ALLTOALL, Collective.SENDRECV):
        round = timing.path_rounds(columns)
    else:
        round = timing.out_tree_rounds(columns, ranks)
    size = blocks.size[block] * routes.shares / routes.denominator
    if problem.listed is not None and not problem.paired:
        size = size * problem.listed.order
    segments, _ = timing.Pipeline(problem, round, columns.hops, size[chunk], launch_ns).best()
    transfers = Transfers(chunk, columns.hops // ranks, columns.hops % ranks, round, reduce)
    images = problem.listed.order if problem.listed is not None and problem.paired else 1
    return Draft(
        chunks=Chunks(blocks.origin[block], blocks.target[block], routes.shares),
        transfers=transfers.sorted(),
        denominator=routes.denominator * images,
        segments=segments,
    )


def _allreduce_rounds(columns: Columns, ranks: int, chunk: np.ndarray, outward: np.ndarray) -> np.ndarray:
    """Reduce as early as possible, spread as soon as the root has everything."""
    round = np.zeros(len(chunk), dtype=np.int64)
    halves = [
        Columns(columns.commodity, np.arange(len(columns) + 1) * (ranks - 1), columns.hops[side])
        for side in (~outward, outward)
    ]
    inward = timing.in_tree_rounds(halves[0], ranks)
    round[~outward] = inward
    height = np.maximum.reduceat(inward, halves[0].starts[:-1]) + 1 if len(inward) else np.zeros(0, dtype=np.int64)
    round[outward] = timing.out_tree_rounds(halves[1], ranks) + height[chunk[outward]]
    return round


STRATEGY = Strategy(name="routed", collectives=frozenset(Collective), needs_all_pairs=False, drafts=drafts)
