import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.placement.balance import balance
from solver.placement.bound import rank_load_bound
from solver.placement.eplb import eplb
from solver.placement.nodes import all_packings, pack_groups, packings_count
from solver.placement.problem import Placement, Shape, check_placement
from synth.errors import InputError
from synth.testing.expert_loads import KINDS, expert_loads

SHAPES = {
    "256e_288r_8g_4n_32G": Shape(experts=256, slots=288, ranks=32, nodes=4, groups=8),
    "256e_288r_global_32G": Shape(experts=256, slots=288, ranks=32),
    "64e_80r_8g_4n_16G": Shape(experts=64, slots=80, ranks=16, nodes=4, groups=8),
    "256e_320r_8g_8n_64G": Shape(experts=256, slots=320, ranks=64, nodes=8, groups=8),
    "256e_512r_global_128G": Shape(experts=256, slots=512, ranks=128),
}


def highest(shape: Shape, table: np.ndarray, loads: np.ndarray) -> np.ndarray:
    return Placement(shape, table).rank_loads(loads).max(axis=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_never_above_eplb_and_never_below_the_bound(name, kind):
    shape = SHAPES[name]
    for seed in range(5):
        loads = expert_loads(kind, 58, shape.experts, seed)
        ours = balance(loads, shape)
        check_placement(shape, ours)
        theirs = eplb(loads, shape.slots, shape.groups, shape.nodes, shape.ranks)
        assert (highest(shape, ours, loads) <= highest(shape, theirs, loads)).all()
        assert (highest(shape, ours, loads) >= rank_load_bound(loads, shape) * (1 - 1e-9)).all()
        if shape.grouped:
            assert whole_groups_in_nodes(shape, ours)


def whole_groups_in_nodes(shape: Shape, table: np.ndarray) -> bool:
    group = table // (shape.experts // shape.groups)
    per_node = group.reshape(len(table), shape.nodes, -1)
    return all(
        len(np.unique(per_node[layer, node])) == shape.groups // shape.nodes
        for layer in range(len(table))
        for node in range(shape.nodes)
    )


def test_skewed_groups_come_close_to_the_bound():
    shape = SHAPES["256e_288r_8g_4n_32G"]
    ratios = [
        Placement(shape, balance(loads, shape)).max_over_mean(loads)
        for loads in (expert_loads("zipf1.2", 58, 256, seed) for seed in range(5))
    ]
    assert np.mean(ratios) < 1.54  # EPLB 1.9527, bound 1.5326


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_shape_and_load_gives_a_legal_map_not_above_eplb(data):
    nodes = data.draw(st.sampled_from([1, 2, 4]))
    ranks = nodes * data.draw(st.integers(1, 4))
    groups = data.draw(st.sampled_from([1, 2, 4, 8]))
    experts = groups * data.draw(st.integers(1, 4))
    per_rank = data.draw(st.integers(-(-experts // ranks), -(-experts // ranks) + 3))
    shape = Shape(experts=experts, slots=ranks * per_rank, ranks=ranks, nodes=nodes, groups=groups)
    loads = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 1000), min_size=experts, max_size=experts), min_size=1, max_size=3))
    )
    ours = balance(loads, shape)
    check_placement(shape, ours)
    theirs = eplb(loads, shape.slots, shape.groups, shape.nodes, shape.ranks)
    assert (highest(shape, ours, loads) <= highest(shape, theirs, loads)).all()
    assert (highest(shape, ours, loads) >= rank_load_bound(loads, shape) - 1e-9).all()


def test_packings_are_listed_once_each():
    packings = all_packings(8, 4)
    assert len(packings) == packings_count(8, 4) == 105
    assert len({tuple(sorted(map(tuple, packing))) for packing in packings.tolist()}) == 105


def test_best_packing_is_found():
    loads = expert_loads("zipf1.2", 20, 64, seed=3).reshape(20, 8, 8).sum(axis=2)
    chosen = pack_groups(loads, 4)[:, 0]
    for row, members in zip(loads, chosen, strict=True):
        assert row[members].sum(axis=1).max() == row[all_packings(8, 4)].sum(axis=2).max(axis=1).min()


def test_same_input_gives_the_same_map():
    shape = SHAPES["64e_80r_8g_4n_16G"]
    loads = expert_loads("lognormal1.0", 8, 64, seed=2)
    assert (balance(loads, shape) == balance(loads.copy(), shape)).all()


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ({"experts": 8, "slots": 6, "ranks": 2}, "cannot hold 8 experts"),
        ({"experts": 8, "slots": 9, "ranks": 2}, "10 would"),
        ({"experts": 8, "slots": 8, "ranks": 4, "nodes": 3}, "3 nodes"),
        ({"experts": 8, "slots": 8, "ranks": 4, "groups": 3}, "3 equal groups"),
        ({"experts": 0, "slots": 8, "ranks": 4}, "at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(numbers, wrong):
    with pytest.raises(InputError, match=wrong):
        Shape(**numbers)
