import numpy as np
import pytest

from solver.placement.bound import rank_load_bound
from solver.placement.exact import optimum, packing_optimum, split_optimum
from solver.placement.nodes import pack_groups
from solver.placement.place import place
from solver.placement.problem import Placement, Shape, check_placement
from synth.testing.expert_loads import KINDS, expert_loads

SMALL = [
    Shape(experts=6, slots=8, ranks=4),
    Shape(experts=4, slots=6, ranks=6),
    Shape(experts=8, slots=10, ranks=2),
    Shape(experts=5, slots=9, ranks=3),
    Shape(experts=6, slots=6, ranks=3),
    Shape(experts=8, slots=12, ranks=4, nodes=2, groups=4),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SMALL)
def test_bound_and_placement_are_exact_on_small_layers(shape, kind):
    for seed in range(2):
        loads = expert_loads(kind, 1, shape.experts, seed).astype(float)
        best = optimum(loads[0], shape)
        assert best.proven
        check_placement(shape, best.phy2log[None])
        assert Placement(shape, best.phy2log[None]).rank_loads(loads).max() == pytest.approx(best.highest)
        assert rank_load_bound(loads, shape)[0] <= best.highest * (1 + 1e-9)
        placed = place(loads, shape)
        assert placed.placement.rank_loads(loads).max() == pytest.approx(best.highest, rel=1e-6)
        assert placed.bound[0] == pytest.approx(best.highest, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("groups", "nodes"), [(8, 4), (8, 2), (6, 3)])
def test_packing_of_groups_is_the_optimum(groups, nodes, kind):
    loads = expert_loads(kind, 3, groups * 4, seed=1)
    group_loads = loads.reshape(3, groups, 4).sum(axis=2)
    chosen = pack_groups(group_loads, nodes)[:, 0]
    for row, members in zip(group_loads, chosen, strict=True):
        assert row[members].sum(axis=1).max() == pytest.approx(packing_optimum(row, nodes))
    # many slots: only whole groups bind, and the bound is the packing
    shape = Shape(experts=groups * 4, slots=groups * 16, ranks=nodes, nodes=nodes, groups=groups)
    assert rank_load_bound(loads, shape) == pytest.approx([packing_optimum(row, nodes) for row in group_loads])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [s for s in SMALL if not s.grouped])
def test_bound_is_at_most_the_fractional_optimum(shape, kind):
    loads = expert_loads(kind, 1, shape.experts, seed=3).astype(float)
    assert rank_load_bound(loads, shape)[0] <= optimum(loads[0], shape).highest * (1 + 1e-9)
    assert split_optimum(loads[0], shape) <= optimum(loads[0], shape).highest * (1 + 1e-9)


def test_one_slot_per_rank_is_bound_by_copies():
    loads = np.array([[60.0, 30.0, 6.0, 4.0]])
    shape = Shape(experts=4, slots=6, ranks=6)
    assert rank_load_bound(loads, shape)[0] == 30  # two spare slots: 60 in three copies leaves 30 whole
