import numpy as np
import pytest

from solver.placement.balance import balance
from solver.placement.eplb import eplb
from solver.placement.place import place
from solver.placement.problem import Placement, Shape, check_placement
from solver.placement.relabel import align, moves, relabel
from solver.placement.repair import highest
from solver.placement.traffic import Traffic, cross_node_share, nodes_per_token, traffic_matrix
from synth.errors import InputError
from synth.testing.expert_loads import expert_loads
from synth.testing.routing import loads_of, planted_routing, together_of

GLOBAL = Shape(experts=256, slots=288, ranks=32, nodes=4)
GROUPED = Shape(experts=256, slots=288, ranks=32, nodes=4, groups=8)


@pytest.mark.parametrize("topics", [8, 32])
def test_coactivation_lowers_traffic_between_nodes_at_no_higher_load(topics):
    choices = planted_routing(256, topics, 20_000, 8, seed=1)
    loads, together = loads_of(choices, 256)[None], together_of(choices, 256)[None]
    ours = place(loads, GLOBAL, traffic=Traffic(together=together)).placement
    grouped = Placement(GROUPED, eplb(loads, 288, 8, 4, 32))
    shuffled = ours.phy2log[:, np.random.default_rng(0).permutation(288)]
    assert ours.max_over_mean(loads)[0] <= grouped.max_over_mean(loads)[0]
    assert nodes_per_token(ours, choices) < 0.85 * nodes_per_token(grouped, choices)
    assert nodes_per_token(ours, choices) < 0.85 * nodes_per_token(Placement(GLOBAL, shuffled), choices)


def test_groups_that_are_used_together_share_a_node():
    # tokens choose from groups 0 and 7, 1 and 6, ..: the packing should pair them
    first, one, two = (axis.ravel() for axis in np.indices((4, 8, 8)))
    choices = np.stack([8 * first + one, 8 * (7 - first) + two], axis=1)
    shape = Shape(experts=64, slots=80, ranks=16, nodes=4, groups=8)
    loads, together = loads_of(choices, 64)[None], together_of(choices, 64)[None]
    ours = place(loads, shape, traffic=Traffic(together=together)).placement
    theirs = Placement(shape, eplb(loads, 80, 8, 4, 16))
    assert nodes_per_token(ours, choices) == pytest.approx(1.0)
    assert ours.max_over_mean(loads)[0] <= theirs.max_over_mean(loads)[0]


def test_sources_bring_experts_near_their_users():
    shape = Shape(experts=32, slots=32, ranks=8, nodes=2)
    sources = np.ones((1, 8, 32))
    sources[0, :4, 1::2] = 20  # node 0 uses odd experts, node 1 even ones
    sources[0, 4:, 0::2] = 20
    loads = sources.sum(axis=1)
    ours = place(loads, shape, traffic=Traffic(sources=sources)).placement
    share = cross_node_share(ours, traffic_matrix(ours, loads, sources))[0]
    assert share == pytest.approx(1 / 21)


def test_small_gain_changes_nothing():
    loads = expert_loads("lognormal1.0", 6, 256, seed=0)
    first = place(loads, GROUPED).placement.phy2log
    again = place(loads * 1.001, GROUPED, previous=first)
    assert again.kept.all()
    assert (again.placement.phy2log == first).all()
    assert (again.moves == 0).all()


@pytest.mark.parametrize("shape", [GLOBAL, GROUPED])
def test_previous_placement_saves_moves_without_losing_balance(shape):
    loads = expert_loads("zipf1.2", 8, 256, seed=3).astype(float)
    first = place(loads, shape).placement.phy2log
    drifted = np.floor(loads * np.random.default_rng(1).lognormal(0, 0.2, loads.shape))
    moved = place(drifted, shape, previous=first)
    fresh = place(drifted, shape).placement.phy2log
    check_placement(shape, moved.placement.phy2log)
    limit = np.where(moved.kept, 1.02, 1.005) * highest(fresh, drifted, shape)
    assert (highest(moved.placement.phy2log, drifted, shape) <= limit * (1 + 1e-9)).all()
    assert moved.moves.sum() < 0.7 * moves(fresh, first, shape).sum()


def test_relabelling_keeps_loads_and_saves_moves():
    loads = expert_loads("uniform", 4, 64, seed=0)
    shape = Shape(experts=64, slots=80, ranks=16, nodes=4, groups=8)
    placed = balance(loads, shape)
    shuffled = placed.reshape(4, 16, 5)[:, np.r_[8:16, 0:8]][:, :, ::-1].reshape(4, 80)  # nodes swapped, slots reversed
    back = relabel(placed, loads, shape, Traffic(), shuffled)
    assert (moves(back, shuffled, shape) == 0).all()
    assert (back == shuffled).all()


def test_experts_that_stay_keep_their_slot():
    shape = Shape(experts=6, slots=6, ranks=2)
    assert align(np.array([[0, 1, 2, 3, 4, 5]]), np.array([[2, 9, 0, 5, 4, 3]]), shape).tolist() == [[2, 1, 0, 5, 4, 3]]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"previous": np.zeros((2, 80), dtype=int)}, "holds no copy of expert 1"),
        ({"previous": np.zeros((2, 79), dtype=int)}, "must be layers x 80 slots"),
        ({"previous": np.full((2, 80), 64)}, "outside 0 to 63"),
        ({"traffic": Traffic(together=np.zeros((2, 3, 3)))}, "must be 2 x 64 x 64"),
        ({"traffic": Traffic(sources=-np.ones((2, 16, 64)))}, "negative"),
        ({"loads": np.full((2, 64), np.nan)}, "unusable"),
        ({"loads": np.ones((2, 63))}, "must be layers x 64 experts"),
    ],
)
def test_tables_that_do_not_fit_are_refused(change, wrong):
    shape = Shape(experts=64, slots=80, ranks=16, nodes=4, groups=8)
    given = {"loads": np.ones((2, 64))} | change
    with pytest.raises(InputError, match=wrong):
        place(given.pop("loads"), shape, **given)


def test_layers_without_load_are_placed_too():
    placed = place(np.zeros((2, 64)), Shape(experts=64, slots=80, ranks=16))
    check_placement(placed.placement.shape, placed.placement.phy2log)
    assert placed.placement.max_over_mean(np.zeros((2, 64))).tolist() == [1, 1]
