import numpy as np

from solver.placement.eplb import eplb
from solver.placement.problem import Placement, Shape
from solver.placement.rebalance import Rebalancer, rebalance_experts
from synth.testing.expert_loads import expert_loads
from synth.topology import Routes, catalog

SHAPE = Shape(experts=64, slots=80, ranks=16, nodes=2, groups=8)


def test_signature_and_maps_are_those_of_eplb():
    loads = expert_loads("zipf1.2", 3, 64, seed=0)
    phy2log, log2phy, logcnt = rebalance_experts(loads, 80, 8, 2, 16)
    assert phy2log.shape == (3, 80)
    assert logcnt.shape == (3, 64)
    assert (logcnt.sum(axis=1) == 80).all()
    assert log2phy.shape == (3, 64, logcnt.max())
    ours = Placement(SHAPE, phy2log).max_over_mean(loads)
    assert (ours <= Placement(SHAPE, eplb(loads, 80, 8, 2, 16)).max_over_mean(loads)).all()


def test_a_rebalancer_moves_little_and_says_how():
    topology = catalog.build("hgx-h100x2")
    rebalancer = Rebalancer(SHAPE, Routes.among(topology))
    loads = expert_loads("lognormal1.0", 3, 64, seed=0).astype(float)
    first, steps = rebalancer.update(loads)
    assert steps == []
    again, steps = rebalancer.update(loads * 1.001)
    assert again.kept.all()
    assert steps == []
    drifted = loads * np.random.default_rng(0).lognormal(0, 0.4, loads.shape)
    moved, steps = rebalancer.update(drifted)
    assert sum(len(step.fetches) for step in steps) == moved.moves.sum() > 0
    assert rebalancer.placement is moved.placement
    assert (moved.placement.phy2log != first.placement.phy2log).any()
