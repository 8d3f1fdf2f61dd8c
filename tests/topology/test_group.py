"""Groups of permutations by their generators, and automorphisms, against writing everything out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.symmetry import rotations
from synth.topology import Device, DeviceKind, Link, LinkClass, Routes, Topology, catalog
from synth.topology.automorphism import Checker, under
from synth.topology.degrade import degrade
from synth.topology.group import Group
from synth.topology.kinds import Kinds
from tests.clusters import networked

PERMUTATIONS = st.integers(2, 7).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=3))


def closure(generators: np.ndarray) -> set[tuple[int, ...]]:
    found = {tuple(range(generators.shape[1]))}
    while True:
        wider = found | {tuple(g[list(element)].tolist()) for element in found for g in generators}
        if wider == found:
            return found
        found = wider


@settings(max_examples=300, deadline=None)
@given(PERMUTATIONS)
def test_groups_act_freely_when_all_their_elements_do(permutations: list[list[int]]) -> None:
    generators = np.array(permutations)
    everything = closure(generators)
    positions = np.arange(generators.shape[1])
    always = (np.array(list(everything)) == positions).all(axis=0)
    free = len(everything) > 1 and all(
        element == tuple(positions) or ((np.array(element) == positions) == always).all() for element in everything
    )
    group = Group.acting_freely(generators)
    assert (group is not None) == free
    for found in filter(None, [group, Group.of_most(generators, len(everything))]):
        assert {tuple(element) for element in found.elements.tolist()} == everything
        assert found.order == len(everything)
        assert (found.fixed == always).all()
        assert found.orbit_sizes.sum() == len(positions)
        assert (found.representatives[found.orbit] <= positions).all()
        made = list(found.made_from())
        assert sorted([rank for rank, *_ in made] + found.representatives.tolist()) == positions.tolist()
        assert all(generators[which][source] == rank for rank, source, which in made)
    assert len(everything) == 1 or Group.of_most(generators, len(everything) - 1) is None


@settings(max_examples=100, deadline=None)
@given(PERMUTATIONS)
def test_nothing_that_may_grow_is_turned_away(permutations: list[list[int]]) -> None:
    *some, last = np.array(permutations)
    group = Group.acting_freely(np.array(some)) if some else None
    if group is not None and Group.acting_freely(np.array([*some, last])) is not None:
        assert group.may_grow_by(last)


def spines(names: list[str]) -> Topology:
    """Two pairs of GPUs, each joined by two switches of these names; ids decide which."""
    pairs = (("n0/gpu0", "n0/gpu1", names[:2]), ("n1/gpu0", "n1/gpu1", names[2:]))
    gpus = [Device(id=id, kind=DeviceKind.GPU, node=id[:2]) for a, b, _ in pairs for id in (a, b)]
    ends = [(end, switch) for a, b, switches in pairs for end in (a, b) for switch in switches]
    ends += [("n0/gpu0", "fabric"), ("n1/gpu0", "fabric"), ("n0/gpu1", "fabric"), ("n1/gpu1", "fabric")]
    return Topology(
        name="spines",
        devices=(*gpus, *(Device(id=id, kind=DeviceKind.SWITCH) for id in [*names, "fabric"])),
        links=tuple(
            Link(
                src=src,
                dst=dst,
                link_class=LinkClass.NETWORK,
                bytes_per_s=1e9 if "fabric" in (src, dst) else 2e9,
                latency_ns=100,
            )
            for a, b in ends
            for src, dst in ((a, b), (b, a))
        ),
    )


def test_ids_that_decide_otherwise_on_the_other_side_are_noticed() -> None:
    swap = np.array([[2, 3, 0, 1]])
    assert under(Routes.among(spines(["s1", "s2", "s3", "s4"])), swap) is not None
    assert under(Routes.among(spines(["s2", "s1", "s3", "s4"])), swap) is None


MACHINES = (
    catalog.build("asym8"),
    catalog.build("dgx2x2"),
    catalog.build("hgx-h100x2"),
    catalog.build("mi250x1"),
    catalog.build("ndv2x2"),
    catalog.build("torus3x3x3"),
    catalog.build("mesh5x5"),
    networked("hgx-h100x4", "leaf-spine:2:2"),
    networked("hgx-h100x2", "isolated-rails"),
    degrade(catalog.build("hgx-h100x4"), {("n0/nic0", "fabric"): 0.0}),
    spines(["s1", "s2", "s3", "s4"]),
    spines(["s2", "s1", "s3", "s4"]),
)


def keeps(routes: Routes, image: np.ndarray, links: np.ndarray) -> bool:
    """Whether the route of every pair's image is the image of its route, pair by pair."""
    pairs = itertools.permutations(range(routes.ranks), 2)
    return all(links[routes.route(a, b)].tolist() == routes.route(image[a], image[b]).tolist() for a, b in pairs)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_what_is_accepted_keeps_every_route(machine: Topology) -> None:
    routes = Routes.among(machine)
    order = np.arange(routes.ranks)
    checker = Checker(routes)
    for image in [*rotations(order, routes.ranks), *rotations(order[routes.ranks // 4 :], routes.ranks)]:
        links = checker.links_of(image)
        symmetric = under(routes, image[None]) if Group.acting_freely(image[None]) else None
        if links is None:
            assert symmetric is None
        elif Group.acting_freely(image[None]):
            assert (symmetric is not None) == keeps(routes, image, links)
        if symmetric is not None:
            assert (symmetric.links == routes.links).all()
            assert (symmetric.starts == routes.starts).all()
            assert (symmetric.latency_ns == routes.latency_ns).all()
            check_kinds(symmetric)


def check_kinds(routes: Routes) -> None:
    group = routes.group
    assert group is not None
    kinds = Kinds.told_apart([routes.row(rank) for rank in group.representatives.tolist()], group)
    lengths = np.random.default_rng(0).random(group.link_orbit.max() + 1)
    weights = kinds.weights(lengths)[kinds.of]
    np.fill_diagonal(weights, 0.0)
    np.testing.assert_allclose(weights, routes.hop_weights(lengths[group.link_orbit]))
    latency = kinds.latency_ns[kinds.of]
    np.fill_diagonal(latency, 0.0)
    assert (latency == routes.latency_ns).all()
