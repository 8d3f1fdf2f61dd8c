from collections import defaultdict

import numpy as np
import pytest

from solver.placement.migration import migration
from solver.placement.place import place
from solver.placement.problem import Placement, Shape
from solver.placement.relabel import moves
from synth.collective import Collective, Demand
from synth.simulator import simulate
from synth.testing.expert_loads import expert_loads
from synth.topology import Routes, catalog
from synth.verifier import verify


def two_placements(shape: Shape, layers: int = 3) -> tuple[Placement, Placement]:
    before = place(expert_loads("zipf1.2", layers, shape.experts, seed=0), shape).placement
    loads = expert_loads("zipf1.2", layers, shape.experts, seed=1)
    return before, place(loads, shape, previous=before.phy2log).placement


MACHINES = [
    ("hgx-h100x2", Shape(experts=64, slots=80, ranks=16, nodes=2, groups=8)),
    ("torus3x3x3", Shape(experts=54, slots=81, ranks=27)),  # most pairs have no direct route
    ("asym8", Shape(experts=32, slots=40, ranks=8)),
]


@pytest.mark.parametrize(("machine", "shape"), MACHINES)
def test_plans_are_valid_and_bring_every_expert(machine, shape):
    topology = catalog.build(machine)
    before, after = two_placements(shape)
    steps = migration(before, after, Routes.among(topology))
    arrived = defaultdict(set)
    for step in steps:
        assert verify(step.plan, topology) == ()
        assert sorted(zip(step.plan.chunks.origin, step.plan.chunks.target, strict=True)) == sorted(step.pairs)
        for fetch in step.fetches:
            assert before.held[step.layer, fetch.src, fetch.expert] > 0
            assert after.phy2log[step.layer, fetch.slot] == fetch.expert
            arrived[step.layer].add((fetch.dst, fetch.expert))
    for layer in range(3):
        needed = (after.held[layer] > 0) & (before.held[layer] == 0)
        assert arrived[layer] == {tuple(cell) for cell in np.argwhere(needed).tolist()}
    assert sum(len(step.fetches) for step in steps) == moves(after.phy2log, before.phy2log, shape).sum()


@pytest.mark.parametrize(("machine", "shape"), MACHINES)
def test_a_rank_has_one_peer_per_round(machine, shape):
    topology = catalog.build(machine)
    before, after = two_placements(shape)
    for step in migration(before, after, Routes.among(topology)):
        peers = defaultdict(set)
        moved = step.plan.transfers
        for src, dst, number in zip(moved.src.tolist(), moved.dst.tolist(), moved.round.tolist(), strict=True):
            peers[src, number].add(dst)
            peers[dst, number].add(src)
        assert max(len(found) for found in peers.values()) == 1


def test_plans_can_be_priced():
    topology = catalog.build("hgx-h100x2")
    before, after = two_placements(MACHINES[0][1], layers=1)
    step = migration(before, after, Routes.among(topology))[0]
    demand = Demand(collective=Collective.SENDRECV, ranks=16, bytes=44_000_000, pairs=step.pairs)
    seconds = simulate(step.plan, topology, demand).seconds
    assert seconds >= 44_000_000 / 450e9
    assert seconds <= step.plan.rounds * (44_000_000 / 50e9 + 1e-5)


def test_near_holders_are_preferred():
    topology = catalog.build("hgx-h100x2")
    shape = Shape(experts=16, slots=32, ranks=16, nodes=2)
    table = np.tile(np.repeat(np.arange(16), 1), 2)[None]  # rank r holds 2r and 2r + 1 (mod 16): a copy in either node
    after = table.copy()
    after[0, 0] = 2  # rank 0 drops expert 0 and needs expert 2, held by rank 1 and rank 9
    step = migration(Placement(shape, table), Placement(shape, after), Routes.among(topology))[0]
    assert step.pairs == ((1, 0),)


def test_nothing_moves_between_equal_placements():
    before, _ = two_placements(MACHINES[0][1])
    assert migration(before, before, Routes.among(catalog.build("hgx-h100x2"))) == []
