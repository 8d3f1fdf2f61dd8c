import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import EVERY, Collective
from synth.errors import DemandError
from synth.plan import Chunks, Plan, Symmetry, Transfers
from synth.plan.lowering import Lowering, lower
from tests.runtime.expected import case, draw_counts, uniform_counts
from tests.runtime.interpreter import run_programs

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "data" / "vectors"


def check(plan, counts, align=1, seed=0):
    rng = np.random.default_rng(seed)
    ranks = len(plan.ranks)
    inputs, outputs = case(
        plan.collective, counts, plan.members, ranks, plan.root, lambda n: rng.integers(-(2**40), 2**40, n)
    )
    programs = [lower(plan, counts, rank, align=align) for rank in range(ranks)]
    for got, wanted in zip(run_programs(programs, inputs), outputs, strict=True):
        np.testing.assert_array_equal(got, wanted)
    return programs


@pytest.mark.parametrize("collective", list(Collective))
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 4096])
def test_direct_plans_deliver(collective, ranks, count):
    pairs = [(r, (r + 1) % ranks) for r in range(ranks)]
    plan = direct_plan(collective, ranks, root=ranks - 1, pairs=pairs)
    check(plan, uniform_counts(collective, ranks, count, pairs))


@pytest.mark.parametrize("align", [1, 8])
@pytest.mark.parametrize(
    "name",
    ["asym8-allreduce", "ndv2x1-alltoall", "ndv2x1-alltoallv", "mi250x1-reduce_scatter", "dgx2x2-allgather",
     "hgx-h100x2-alltoall-symmetric"],
)  # fmt: skip
def test_plans_of_another_implementation_deliver(name, align):
    path = VECTORS / f"{name}.json"
    if not path.exists():
        pytest.skip("the shared plan vectors are not here")
    plan = plans.from_document(json.loads(path.read_text())["plan"])
    rng = np.random.default_rng(3)
    for count in (0, 1, 7, 1003):
        check(plan, uniform_counts(plan.collective, plan.members, count), align)
    check(plan, draw_counts(plan.collective, plan.members, rng, most=3000), align)


@st.composite
def relayed_plans(draw):
    """Random valid plans that store, split, forward and add: random paths, trees and pipelines."""
    ranks = draw(st.integers(2, 6))
    helpers = draw(st.integers(0, 1)) if ranks > 2 else 0
    members = ranks - helpers
    collective = draw(st.sampled_from(list(Collective)))
    root = draw(st.integers(0, members - 1)) if collective.rooted else None
    segments = draw(st.integers(1, 4))
    rows, origins, targets, shares = [], [], [], []
    denominator = draw(st.sampled_from([1, 2, 5]))
    match collective:
        case Collective.ALLTOALL:
            blocks = [(o, t) for o in range(members) for t in range(members) if o != t]
        case Collective.SENDRECV:
            pairs = [(o, t) for o in range(members) for t in range(members) if o != t]
            blocks = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
        case Collective.ALLGATHER:
            blocks = [(o, EVERY) for o in range(members)]
        case Collective.REDUCE_SCATTER:
            blocks = [(EVERY, t) for t in range(members)]
        case Collective.BROADCAST:
            blocks = [(root, EVERY)]
        case Collective.REDUCE:
            blocks = [(EVERY, root)]
        case _:
            blocks = [(EVERY, EVERY)]

    def path(chunk, origin, target):
        middle = [r for r in draw(st.permutations(range(ranks))) if r not in (origin, target)]
        hops = [origin, *middle[: draw(st.integers(0, 2))], target]
        now = draw(st.integers(0, 2))
        for a, b in itertools.pairwise(hops):
            rows.append((chunk, a, b, now, 0))
            now += draw(st.integers(1, 2))

    def tree(head, must):
        """Random tree edges (parent, child) from ``head`` over ``must`` and perhaps relays, parents first."""
        nodes = [n for n in draw(st.permutations(range(ranks))) if n != head and (n in must or draw(st.booleans()))]
        reached, edges = [head], []
        for n in nodes:
            edges.append((draw(st.sampled_from(reached)), n))
            reached.append(n)
        while True:  # leaves that hold no data of the collective are pointless
            idle = [e for e in edges if e[1] not in must and all(p != e[1] for p, _ in edges)]
            if not idle:
                return edges
            edges = [e for e in edges if e not in idle]

    def spread(chunk, head, start):
        depth = {head: start}
        for parent, child in tree(head, set(range(members))):
            depth[child] = depth[parent] + draw(st.integers(1, 2))
            rows.append((chunk, parent, child, depth[child] - 1, 0))

    def gather(chunk, head):
        edges = tree(head, set(range(members)))
        ready = dict.fromkeys(range(ranks), 0)
        for parent, child in reversed(edges):
            now = ready[child] + draw(st.integers(0, 1))
            rows.append((chunk, child, parent, now, 1))
            ready[parent] = max(ready[parent], now + 1)
        return ready[head]

    for origin, target in blocks:
        left = denominator
        while left:
            share = draw(st.integers(1, left))
            left -= share
            chunk = len(shares)
            origins.append(origin), targets.append(target), shares.append(share)
            if origin != EVERY and target != EVERY:
                path(chunk, origin, target)
            elif origin != EVERY:
                spread(chunk, origin, 0)
            elif target != EVERY:
                gather(chunk, target)
            else:
                head = draw(st.integers(0, ranks - 1))
                spread(chunk, head, gather(chunk, head))
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    chunk, src, dst, round, reduce = columns
    return Plan(
        collective=collective,
        ranks=tuple(f"g{r}" for r in range(ranks)),
        helpers=helpers,
        root=root,
        topology="",
        segments=segments,
        denominator=denominator,
        chunks=Chunks(np.array(origins), np.array(targets), np.array(shares)),
        transfers=Transfers(chunk, src, dst, round, reduce).sorted(),
    )


@settings(max_examples=150, deadline=None)
@given(relayed_plans(), st.integers(0, 2**32), st.sampled_from([1, 4]))
def test_any_plan_delivers_any_counts(plan, seed, align):
    rng = np.random.default_rng(seed)
    pairs = list(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True))
    check(plan, draw_counts(plan.collective, plan.members, rng, pairs=pairs), align, seed)


@settings(max_examples=40, deadline=None)
@given(relayed_plans(), st.integers(0, 2**32))
def test_a_slice_gives_the_program_of_the_whole(plan, seed):
    rng = np.random.default_rng(seed)
    pairs = list(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True))
    counts = draw_counts(plan.collective, plan.members, rng, pairs=pairs)
    rank = int(rng.integers(len(plan.ranks)))
    part, _, _ = plans.load_slice(plans.slice_plan(plan, rank))
    whole, cut = lower(plan, counts, rank), lower(part, counts, rank)
    assert whole.outputs == cut.outputs
    assert [(r.number, r.sends, r.receives) for r in whole.rounds] == [
        (r.number, r.sends, r.receives) for r in cut.rounds
    ]


def test_scratch_is_reused():
    """A chain of three ranks with many segments holds a few segments at the relay, not all of them."""
    plan = Plan(
        collective=Collective.SENDRECV,
        ranks=("a", "b", "c"),
        topology="",
        segments=100,
        denominator=1,
        chunks=Chunks(np.array([0]), np.array([2]), np.array([1])),
        transfers=Transfers(np.array([0, 0]), np.array([0, 1]), np.array([1, 2]), np.array([0, 1]), np.array([0, 0])),
    )
    counts = np.zeros((3, 3), dtype=int)
    counts[0, 2] = 1000
    programs = check(plan, counts)
    assert programs[1].scratch == 20
    assert programs[0].scratch == programs[2].scratch == 0


def test_contiguous_data_is_neither_packed_nor_unpacked():
    for collective in (Collective.ALLTOALL, Collective.ALLGATHER, Collective.BROADCAST):
        for program in check(direct_plan(collective, 4), uniform_counts(collective, 4, 11)):
            assert all(len(round.pack) == len(round.unpack) == 0 for round in program.rounds)
            assert program.scratch == 0


def test_messages_of_zero_bytes_are_dropped_by_both_sides():
    counts = np.zeros((3, 3), dtype=int)
    counts[0, 1] = 5
    programs = check(direct_plan(Collective.ALLTOALL, 3), counts)
    assert [len(p.rounds) for p in programs] == [1, 1, 0]


def test_huge_denominators_do_not_overflow():
    whole = 2**50 + 1
    plan = direct_plan(Collective.SENDRECV, 2, pairs=[(0, 1)]).with_(
        denominator=whole,
        chunks=Chunks(np.zeros(2, dtype=int), np.ones(2, dtype=int), np.array([2**50, 1])),
        transfers=Transfers(np.array([0, 1]), *(np.array([v, v]) for v in (0, 1, 0, 0))),
    )
    program = lower(plan, np.array([[0, 2**45], [0, 0]]), 0)
    assert program.sent == 2**45


@pytest.mark.parametrize(
    "counts", [np.ones((2, 2), dtype=int), np.full((3, 3), -1), np.ones((3, 3)), np.ones(3, dtype=int)]
)
def test_counts_that_do_not_fit_are_refused(counts):
    with pytest.raises(DemandError, match="counts"):
        Lowering(direct_plan(Collective.ALLTOALL, 3), 0).program(counts)


def test_a_pair_the_plan_does_not_serve_is_refused():
    with pytest.raises(DemandError, match="no pair 1:0"):
        lower(direct_plan(Collective.SENDRECV, 2, pairs=[(0, 1)]), np.array([[0, 1], [1, 0]]), 0)


def test_symmetric_plans_are_expanded():
    ring = Plan(
        collective=Collective.ALLGATHER,
        ranks=("a", "b", "c"),
        topology="",
        segments=2,
        denominator=1,
        chunks=Chunks(np.array([0]), np.array([EVERY]), np.array([1])),
        transfers=Transfers(np.array([0, 0]), np.array([0, 1]), np.array([1, 2]), np.array([0, 1]), np.array([0, 0])),
        symmetry=Symmetry(((1, 2, 0),), 3),
    )
    check(ring, np.array([3, 0, 5]))
