from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from solver.groups.exact import exact, partitions_count, partitions_of
from solver.groups.master import exact_by_integers
from solver.groups.partition import partition
from solver.groups.pricing import price
from solver.groups.problem import Groups, Problem, contiguous, strided
from synth.errors import Infeasible, InputError
from synth.topology import Topology, catalog
from synth.topology.degrade import degrade
from tests.groups.machines import irregular, isolated_rails, switched

MIB64 = 64 * 2**20


def problem_on(topology: Topology, size: int, **more) -> Problem:
    return Problem(topology=topology, gpus=topology.gpus, size=size, bytes=MIB64, **more)


def every_partition(items: tuple[int, ...], size: int) -> Iterator[Groups]:
    if len(items) < size:
        yield ()
        return
    if len(items) % size:  # one of them stays out
        for gone in items:
            rest = tuple(item for item in items if item != gone)
            yield from every_partition(rest, size)
        return
    for mates in combinations(items[1:], size - 1):
        rest = tuple(item for item in items[1:] if item not in mates)
        for others in every_partition(rest, size):
            yield ((items[0], *mates), *others)


def paths_price(problem: Problem, groups: Groups) -> float:
    """The price again, over listed simple paths and another solver."""
    routes = problem.routes
    columns, pairs = [], []
    for group in groups:
        for a, b in permutations(group, 2):
            inner = [gpu for gpu in group if gpu not in (a, b)]
            for length in range(len(inner) + 1):
                for via in permutations(inner, length):
                    path = (a, *via, b)
                    if all(routes.exists[x, y] for x, y in pairwise(path)):
                        columns.append(path)
                        pairs.append((a, b))
    order = sorted(set(pairs))
    links = len(problem.topology.links)
    use = np.zeros((links, len(columns) + 1))
    whole = np.zeros((len(order), len(columns) + 1))
    for number, (path, pair) in enumerate(zip(columns, pairs, strict=True)):
        whole[order.index(pair), number] = 1
        for x, y in pairwise(path):
            use[routes.route(x, y), number] += 1
    use[:, -1] = -problem.topology.bytes_per_s / 1e9
    cost = np.zeros(len(columns) + 1)
    cost[-1] = 1
    found = linprog(cost, A_ub=use, b_ub=np.zeros(links), A_eq=whole, b_eq=np.ones(len(order)))
    return float(found.fun) * problem.block / 1e9


def best_by_enumeration(problem: Problem) -> float:
    return min(
        price(problem, groups).seconds for groups in every_partition(tuple(range(len(problem.gpus))), problem.size)
    )


@pytest.mark.parametrize("seed", range(4))
def test_price_agrees_with_listed_paths(seed):
    problem = problem_on(irregular(seed), 4)
    for groups in (contiguous(8, 4), strided(8, 4), ((0, 3, 5, 6), (1, 2, 4, 7))):
        assert price(problem, groups).seconds == pytest.approx(paths_price(problem, groups), rel=1e-6)


def test_price_of_one_group_is_the_known_optimum():
    # dgx2x2 alltoall runs at 12.5 GB/s at best, so 64 MiB over 32 ranks take 64 MiB / 12.5 GB/s
    topology = catalog.build("dgx2x2")
    assert price(problem_on(topology, 32), (tuple(range(32)),)).seconds == pytest.approx(MIB64 / 12.5e9, rel=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_irregular_machines_get_the_optimum_found_by_enumeration(seed, size):
    problem = problem_on(irregular(seed), size)
    found = partition(problem)
    best = best_by_enumeration(problem)
    assert found.seconds == pytest.approx(best, rel=1e-6)
    assert found.bound == pytest.approx(best, rel=1e-5)
    assert found.termination == "optimal"
    assert found.seconds <= min(found.baselines.values()) * (1 + 1e-9)


@pytest.mark.slow
def test_many_irregular_machines():
    for seed in range(100, 200):
        for size in (2, 4):
            problem = problem_on(irregular(seed), size)
            assert partition(problem).seconds == pytest.approx(best_by_enumeration(problem), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_integer_program_finds_the_same(seed):
    problem = problem_on(irregular(seed), 4)
    start = contiguous(8, 4)
    complete, integers = exact(problem, start), exact_by_integers(problem, start)
    assert complete is not None
    assert integers.seconds == pytest.approx(complete.seconds, rel=1e-6)
    assert integers.bound == pytest.approx(complete.seconds, rel=1e-5)


def test_partitions_are_listed_once_each():
    for gpus, size in ((8, 4), (8, 2), (8, 3), (7, 2), (9, 3)):
        subsets, _, rows = partitions_of(gpus, size)
        listed = {tuple(sorted(tuple(subsets[s]) for s in row)) for row in rows}
        assert len(listed) == len(rows) == partitions_count(gpus, size)


@pytest.mark.parametrize(("name", "size"), [("ndv2x1", 4), ("ndv2x1", 2), ("asym8", 4), ("asym8", 2)])
def test_catalog_machines_get_the_optimum_found_by_enumeration(name, size):
    problem = problem_on(catalog.build(name), size)
    assert partition(problem).seconds == pytest.approx(best_by_enumeration(problem), rel=1e-6)


def test_islands_stay_together():
    assert partition(problem_on(catalog.build("asym8"), 4)).groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    for group in partition(problem_on(catalog.build("asym8"), 2)).groups:
        assert group[0] // 4 == group[1] // 4


def test_nodes_are_groups():
    found = partition(problem_on(catalog.build("hgx-h100x4"), 8))
    assert found.groups == tuple(tuple(range(8 * node, 8 * node + 8)) for node in range(4))
    assert found.termination == "optimal"
    assert found.baselines["strided"] > 5 * found.seconds


def test_gpus_on_the_same_isolated_rail_form_a_group():
    found = partition(problem_on(isolated_rails(), 4))
    assert found.groups == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_rails_that_cannot_reach_each_other_refuse_a_group_across():
    with pytest.raises(Infeasible, match=r"n0/gpu0 has no path to n0/gpu2.* have 4 GPUs"):
        partition(problem_on(isolated_rails(), 8))


def test_a_gpu_outside_the_fabric_is_the_one_left_out():
    topology = switched((8,), outside=("n0/gpu2",))
    found = partition(problem_on(topology, 7))
    assert found.groups == ((0, 1, 3, 4, 5, 6, 7),)


def test_unlike_nodes_fill_groups_in_the_node_first():
    found = partition(problem_on(switched((8, 6, 8, 6)), 4))
    nodes = [{0 if g < 8 else 1 if g < 14 else 2 if g < 22 else 3 for g in group} for group in found.groups]
    assert sum(len(node) == 1 for node in nodes) == 6
    assert len(found.groups) == 7
    assert found.seconds <= min(found.baselines.values()) * (1 + 1e-9)


def test_dead_nics_count():
    healthy = switched((4, 4))
    broken = switched((4, 4), dead_nics=("n0/nic0",))
    slower = partition(problem_on(broken, 8)).seconds / partition(problem_on(healthy, 8)).seconds
    assert slower == pytest.approx(4 / 3)  # the other three NICs carry it
    assert partition(problem_on(broken, 4)).groups == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_slow_links_count():
    topology = catalog.build("ndv2x1")
    before = partition(problem_on(topology, 2))
    pair = before.groups[0]
    slow = degrade(topology, {(topology.gpus[pair[0]], topology.gpus[pair[1]]): 0.25})
    problem = problem_on(slow, 2)
    after = partition(problem)
    assert after.seconds == pytest.approx(best_by_enumeration(problem), rel=1e-6)


def test_background_traffic_moves_groups_away():
    topology = catalog.build("ndv2x1")
    background = np.zeros((8, 8))
    plain = partition(problem_on(topology, 4))
    a, b = plain.groups[0][:2]
    background[a, b] = background[b, a] = 4 * MIB64
    loaded = problem_on(topology, 4, background=background)
    found = partition(loaded)
    best = min(price(loaded, groups).seconds for groups in every_partition(tuple(range(8)), 4))
    assert found.seconds == pytest.approx(best, rel=1e-6)


def test_never_worse_than_the_baselines():
    for name, size in (("torus3x3x3", 3), ("mesh5x5", 5), ("ndv2x4", 4), ("mi250x2", 16)):
        found = partition(problem_on(catalog.build(name), size))
        assert found.seconds <= min(found.baselines.values()) * (1 + 1e-9)
        assert found.bound <= found.seconds


def test_large_clusters_are_worked_out_by_cells():
    topology = switched((8,) * 32)
    for size in (4, 8, 16):
        found = partition(problem_on(topology, size))
        assert found.termination == "optimal"
        assert sorted(gpu for group in found.groups for gpu in group) == list(range(256))
        assert found.seconds <= min(found.baselines.values()) * (1 + 1e-9)


def test_cells_and_joint_pricing_agree():
    from solver.groups.cells import Cells

    for name, size in (("hgx-h100x4", 8), ("hgx-h100x4", 16), ("dgx2x2", 4)):
        problem = problem_on(catalog.build(name), size)
        for groups in (contiguous(32, size), strided(32, size)):
            joint, cells = price(problem, groups).seconds, Cells(problem).seconds(groups)
            assert cells >= joint * (1 - 1e-9) or not np.isfinite(joint)
            if groups == contiguous(32, size):
                assert cells == pytest.approx(joint, rel=1e-6)


def test_same_input_gives_the_same_groups():
    assert partition(problem_on(irregular(3), 4)) == partition(problem_on(irregular(3), 4))


@pytest.mark.parametrize(("size", "bytes"), [(1, 8), (9, 8), (4, 0)])
def test_sizes_that_do_not_fit_are_refused(size, bytes):
    topology = catalog.build("asym8")
    with pytest.raises(InputError):
        Problem(topology=topology, gpus=topology.gpus, size=size, bytes=bytes)
