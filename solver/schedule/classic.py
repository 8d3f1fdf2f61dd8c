"""The schedules everybody knows: ring, recursive halving and doubling, binomial tree, two-level.

They are candidates like any other, and the baselines that reports compare with. All but the exchange over rails are
trees: one per block, given by the parent of every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from solver.bound import Columns, Problem
from solver.schedule.assembly import pipeline
from solver.schedule.draft import Draft, Strategy, Task
from solver.schedule.rounding import Whole
from synth.collective import Collective

SPREADING = frozenset({Collective.ALLGATHER, Collective.BROADCAST})
TREES = SPREADING | {Collective.REDUCE_SCATTER, Collective.REDUCE, Collective.ALLREDUCE}

Parents = Callable[[Problem, int], np.ndarray]
"""[ranks] parent of each rank in the out-tree from a root, -1 for the root."""


def ring_parents(problem: Problem, root: int) -> np.ndarray:
    """Each rank hears from the one before it."""
    ranks = problem.routes.ranks
    parents = (np.arange(ranks) - 1) % ranks
    parents[root] = -1
    return np.asarray(parents)


def doubling_parents(problem: Problem, root: int) -> np.ndarray:
    """In round k whoever has the block sends it to the rank whose number differs in bit k."""
    apart = np.arange(problem.routes.ranks) ^ root
    return np.where(apart == 0, -1, np.arange(problem.routes.ranks) ^ _highest_bit(apart))


def binomial_parents(problem: Problem, root: int) -> np.ndarray:
    """In round k the first 2^k ranks after the root send to the next 2^k."""
    ranks = problem.routes.ranks
    apart = (np.arange(ranks) - root) % ranks
    return np.where(apart == 0, -1, (root + apart - _highest_bit(apart)) % ranks)


def two_level_parents(problem: Problem, root: int) -> np.ndarray:
    """The root sends to its peers and to its rail in every other node, which sends on to its own peers."""
    node, local, table = _nodes(problem)
    parents = table[node, local[root]]
    parents[node == node[root]] = root
    parents[table[:, local[root]]] = root
    parents[root] = -1
    return np.asarray(parents)


def _highest_bit(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, 1 << np.floor(np.log2(np.maximum(values, 1))).astype(np.int64), 0)


def _nodes(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """([ranks] node, [ranks] position in it, [nodes, positions] rank); no table where nodes differ in size."""
    topology = problem.routes.topology
    names = [topology.devices[topology.index[device]].node or "" for device in problem.routes.devices]
    number = {name: position for position, name in enumerate(dict.fromkeys(names))}
    node = np.array([number[name] for name in names])
    members = [np.flatnonzero(node == n) for n in range(len(number))]
    local = np.zeros(len(names), dtype=np.int64)
    for inside in members:
        local[inside] = np.arange(len(inside))
    if len({len(inside) for inside in members}) > 1:
        return node, local, np.zeros((0, 0), dtype=np.int64)
    return node, local, np.stack(members)


def _equal_nodes(problem: Problem) -> bool:
    table = _nodes(problem)[2]
    return bool(table.shape[0] > 1 and table.shape[1] > 1)


def _roots(problem: Problem) -> np.ndarray:
    """Root of each block's tree; an allreduce is cut into one part per rank."""
    if problem.paired:
        return np.arange(problem.routes.ranks)
    return problem.commodities.root


def _usable(parents: Parents, needs: Callable[[Problem], bool] = lambda problem: True) -> Callable[[Problem], bool]:
    """Whether there are no helpers and every hop of these trees has a route."""

    def fits(problem: Problem) -> bool:
        if problem.routes.ranks != problem.demand.ranks or not needs(problem):
            return False
        exists = problem.routes.exists
        for root in _roots(problem.plain):
            tree = parents(problem, int(root))
            child = np.flatnonzero(tree >= 0)
            forward, back = exists[tree[child], child].all(), exists[child, tree[child]].all()
            collective = problem.demand.collective
            if not ((forward or collective not in SPREADING) and (back or not collective.reduces)):
                return False
            if problem.paired and not forward:
                return False
        return True

    return fits


def _drafts(parents: Parents, *, one_root: bool = False, by_bit: bool = False) -> Callable[[Task], Iterator[Draft]]:
    """Drafts of trees; ``by_bit`` runs the hop over bit k in round k instead of as early as possible."""

    def drafts(task: Task) -> Iterator[Draft]:
        problem = task.problem.plain
        roots = np.zeros(1, dtype=np.int64) if one_root and problem.paired else _roots(problem)
        trees = np.stack([parents(problem, int(root)) for root in roots])
        count, ranks = trees.shape
        rows, child = np.nonzero(trees >= 0)
        parent = trees[rows, child]
        bit = np.log2(np.maximum((child - parent) % ranks if one_root else child ^ parent, 1)).astype(np.int64)
        last = int(bit.max(initial=0))
        out, back = parent * ranks + child, child * ranks + parent
        if problem.paired:
            hops = np.stack([back.reshape(count, -1), out.reshape(count, -1)], axis=1).reshape(-1)
            bits = bit.reshape(count, -1)
            clock = np.stack([last - bits, last + 1 + bits], axis=1).reshape(-1)
            label, share = roots, np.ones(count, dtype=np.int64)
        else:
            reduces = problem.demand.collective.reduces
            hops, clock = (back, last - bit) if reduces else (out, bit)
            label, share = np.arange(count), np.ones(count, dtype=np.int64)
        starts = np.arange(count + 1) * (len(hops) // count)
        whole = Whole(
            columns=Columns(label, starts, hops),
            shares=share,
            denominator=count if problem.paired else 1,
            kept=np.arange(count),
        )
        draft = pipeline(problem, whole, task.launch_ns, fixed=clock if by_bit else None)
        yield Draft(
            chunks=draft.chunks,
            transfers=draft.transfers,
            denominator=draft.denominator,
            segments=draft.segments,
            whole=True,
        )

    return drafts


def _rail_drafts(task: Task) -> Iterator[Draft]:
    """Trees for most collectives; an alltoall goes to the right rail inside the node, then along the rail."""
    if task.problem.demand.collective is not Collective.ALLTOALL:
        yield from _drafts(two_level_parents)(task)
        return
    problem = task.problem.plain
    node, local, table = _nodes(problem)
    blocks, ranks = problem.demand.blocks, problem.routes.ranks
    relay = table[node[blocks.origin], local[blocks.target]]
    first, second = relay != blocks.origin, relay != blocks.target
    rows = np.concatenate([np.flatnonzero(first), np.flatnonzero(second)])
    hops = np.concatenate([(blocks.origin * ranks + relay)[first], (relay * ranks + blocks.target)[second]])
    columns = Columns.gather(np.arange(len(blocks.size)), rows, hops)
    whole = Whole(
        columns=columns,
        shares=np.ones(len(columns), dtype=np.int64),
        denominator=1,
        kept=np.arange(len(columns)),
    )
    draft = pipeline(problem, whole, task.launch_ns)
    yield Draft(chunks=draft.chunks, transfers=draft.transfers, denominator=1, segments=draft.segments, whole=True)


def _rails_usable(problem: Problem) -> bool:
    if problem.demand.collective is not Collective.ALLTOALL:
        return _usable(two_level_parents, _equal_nodes)(problem)
    if not _equal_nodes(problem) or problem.routes.ranks != problem.demand.ranks:
        return False
    node, local, _ = _nodes(problem)
    near = (node[:, None] == node) | (local[:, None] == local)
    return bool((problem.routes.exists | np.eye(len(node), dtype=bool))[near].all())


def _power_of_two(problem: Problem) -> bool:
    return problem.routes.ranks.bit_count() == 1


RING = Strategy(
    name="ring",
    collectives=frozenset(TREES),
    needs_all_pairs=False,
    drafts=_drafts(ring_parents),
    fits=_usable(ring_parents),
    baseline=True,
)
HALVING_DOUBLING = Strategy(
    name="halving-doubling",
    collectives=frozenset({Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLREDUCE}),
    needs_all_pairs=False,
    drafts=_drafts(doubling_parents, by_bit=True),
    fits=_usable(doubling_parents, _power_of_two),
    baseline=True,
)
BINOMIAL_TREE = Strategy(
    name="binomial-tree",
    collectives=frozenset({Collective.BROADCAST, Collective.REDUCE, Collective.ALLREDUCE}),
    needs_all_pairs=False,
    drafts=_drafts(binomial_parents, one_root=True, by_bit=True),
    fits=_usable(binomial_parents),
    baseline=True,
)
TWO_LEVEL = Strategy(
    name="two-level",
    collectives=frozenset(TREES | {Collective.ALLTOALL}),
    needs_all_pairs=False,
    drafts=_rail_drafts,
    fits=_rails_usable,
    baseline=True,
)
