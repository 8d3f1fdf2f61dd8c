"""Bounds by the orbits of symmetries: the same as pair by pair on small machines, and right on large ones."""

from __future__ import annotations

import numpy as np
import pytest

from solver import portfolio
from solver.bound import Problem, prove
from solver.bound.pricing import cheapest
from solver.bound.trees import Trees
from synth.collective import Collective, Demand, by_orbit
from synth.collective.cheapest import cheapest_deliveries, shortest_paths
from synth.errors import DocumentError, SolveError
from synth.plan.claim import Claim
from synth.topology import Routes, Topology, catalog, routes
from synth.topology.degrade import degrade
from synth.verifier import latency_bound_ns, proven_bound_ns, verify, verify_claim
from tests.clusters import networked

DEAD_NIC = {("n0/nic0", "fabric"): 0.0}
SLOW_NVLINK = {("n0/gpu0", "n0/gpu3"): 0.5}
MACHINES = (
    catalog.build("hgx-h100x4"),
    degrade(catalog.build("hgx-h100x4"), DEAD_NIC),
    catalog.build("mi250x2"),
    degrade(catalog.build("ndv2x4"), SLOW_NVLINK),
    catalog.build("torus3x3x3"),
    catalog.build("mesh5x5"),
    networked("hgx-h100x4", "leaf-spine:2:2"),
    networked("hgx-h100x4", "isolated-rails"),
)
SYMMETRIC = (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLREDUCE)
ROOTED = (Collective.BROADCAST, Collective.REDUCE)


@pytest.fixture
def by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small machines are priced as large ones are."""
    monkeypatch.setattr(routes, "BY_KIND", 0)


def asked(machine: Topology, collective: Collective, size: int = 10**9) -> Demand:
    root = 3 if collective.rooted else None
    return Demand(collective=collective, ranks=len(machine.gpus), bytes=size, root=root)


@pytest.mark.parametrize("collective", [*SYMMETRIC, *ROOTED])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_prices_by_orbit_are_those_of_all_pairs(machine: Topology, collective: Collective, by_kind: None) -> None:
    demand = asked(machine, collective)
    problem = Problem.of(Routes.among(machine), demand, symmetric=True)
    if problem.group is None:
        pytest.skip("no symmetry leaves the root in place")
    kinds, plain = problem.kinds, Routes.among(machine)
    assert kinds is not None
    random = np.random.default_rng(1)
    for prices in (np.ones(problem.rows), random.random(problem.rows), random.integers(0, 3, problem.rows) * 1.0):
        lengths = problem.link_prices(prices) / machine.bytes_per_s
        weights = plain.hop_weights(lengths)
        price = problem.kind_weights(prices)
        np.testing.assert_allclose(problem.weights(prices), weights)
        every = cheapest_deliveries(weights, demand) @ demand.blocks.size
        assert by_orbit.least_total(kinds, price, demand) == pytest.approx(every)
        columns, costs = cheapest(problem, prices)
        assert columns.commodity.tolist() == problem.moving.tolist()
        used = np.asarray(columns.usage(problem) @ prices)
        np.testing.assert_allclose(used, costs * problem.commodities.size[problem.moving], rtol=1e-7, atol=1e-12)
    assert latency_bound_ns(problem.routes, demand) == pytest.approx(latency_bound_ns(plain, demand))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_trees_by_orbit_are_trees(machine: Topology, by_kind: None) -> None:
    problem = Problem.of(Routes.among(machine), asked(machine, Collective.ALLGATHER), symmetric=True)
    assert problem.kinds is not None
    price = problem.kind_weights(np.random.default_rng(2).random(problem.rows))
    weights = price[problem.kinds.of]
    everyone = np.arange(problem.routes.ranks)
    for inward in (False, True):
        contraction = by_orbit.Contraction(problem.kinds, price, inward=inward)
        trees = Trees(contraction)
        for root, cost in zip(problem.kinds.group.representatives.tolist(), contraction.prices, strict=True):
            parents = trees.parents(root)
            others = everyone != root
            assert parents[root] == -1
            hops = (everyone[others], parents[others]) if inward else (parents[others], everyone[others])
            assert weights[hops].sum() == pytest.approx(cost)
            here = everyone.copy()
            for _ in everyone:
                here = np.where(here == root, root, parents[here])
            assert (here == root).all()


@pytest.mark.parametrize("name", ["hgx-h100x2", "torus3x3x3"])
def test_shortest_paths_among_many_or_few_hops(name: str, by_kind: None) -> None:
    problem = Problem.of(
        Routes.among(catalog.build(name)), asked(catalog.build(name), Collective.ALLTOALL), symmetric=True
    )
    kinds = problem.kinds
    assert kinds is not None
    price = problem.kind_weights(np.random.default_rng(3).random(problem.rows))
    weights = price[kinds.of]
    np.fill_diagonal(weights, 0.0)
    distance, before = by_orbit.shortest_from(kinds, price, 0)
    np.testing.assert_allclose(distance, shortest_paths(weights)[0])
    others = np.arange(1, kinds.ranks)
    np.testing.assert_allclose(distance[others], distance[before[others]] + weights[before[others], others], rtol=1e-7)


@pytest.mark.parametrize("collective", [*SYMMETRIC, *ROOTED])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_bounds_by_orbit_are_those_of_all_pairs(
    machine: Topology, collective: Collective, monkeypatch: pytest.MonkeyPatch
) -> None:
    demand = asked(machine, collective)
    usual = prove(machine, demand)
    monkeypatch.setattr(routes, "BY_KIND", 0)
    bound = prove(machine, demand)
    assert bound.optimal
    assert bound.seconds == pytest.approx(usual.seconds, rel=2e-4)
    assert bound.certificate.bound_ns <= proven_bound_ns(bound.certificate, Routes.among(machine), demand)


@pytest.mark.parametrize("collective", SYMMETRIC)
def test_the_bound_among_1024_gpus_is_that_of_their_nics(collective: Collective) -> None:
    machine = catalog.build("hgx-h100x128")
    demand = asked(machine, collective)
    bound = prove(machine, demand)
    outside = 1016 if collective is Collective.ALLTOALL else 127  # blocks that each NIC must carry
    expected = 10**9 * outside / 1024 / 50e9 * (2 if collective is Collective.ALLREDUCE else 1)
    assert bound.seconds == pytest.approx(expected, rel=1e-6)
    claim = Claim(ranks=machine.gpus, demand=demand, certificate=bound.certificate, symmetry=bound.symmetry)
    assert claim.symmetry is not None
    assert claim.symmetry.order == 1024
    again = Claim.from_document(claim.to_document(), subject="claim")
    assert verify_claim(again, machine) == ()


def test_claims_that_are_not_proven_are_refused() -> None:
    machine = catalog.build("hgx-h100x64")
    demand = asked(machine, Collective.ALLGATHER)
    bound = prove(machine, demand)
    claim = Claim(ranks=machine.gpus, demand=demand, certificate=bound.certificate, symmetry=bound.symmetry)
    document = claim.to_document()
    rules = []
    for key, value in (
        ("certificate", {**document["certificate"], "bound_ns": bound.certificate.bound_ns * 1.01}),
        ("symmetry", {"generators": [[*range(1, 512), 0]], "order": 512}),
        ("symmetry", {**document["symmetry"], "order": 8}),
        ("ranks", [*document["ranks"][:-1], "n99/gpu0"]),
    ):
        wrong = Claim.from_document({**document, key: value}, subject="claim")
        rules += [violation.rule for violation in verify_claim(wrong, machine)]
    assert rules == ["bound", "symmetry", "symmetry", "ranks"]
    assert bound.certificate.lengths is not None
    lopsided = bound.certificate.lengths.copy()
    lopsided[lopsided.argmax()] *= 2
    document["certificate"] = {**document["certificate"], "lengths": lopsided.tolist()}
    assert [v.rule for v in verify_claim(Claim.from_document(document, subject="claim"), machine)] == ["bound"]
    with pytest.raises(DocumentError, match="pairs"):
        Claim.from_document({**document, "pairs": [[1]]}, subject="claim")


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.ALLREDUCE])
def test_plans_of_512_gpus_pass_every_rule(collective: Collective) -> None:
    machine = catalog.build("hgx-h100x64")
    solved = portfolio.solve(machine, asked(machine, collective))
    assert solved.gap < 0.08
    assert solved.plan.symmetry is not None
    assert verify(solved.plan, machine) == ()


def test_thousands_of_ranks_without_symmetries_are_refused_in_words() -> None:
    machine = degrade(catalog.build("torus16x16x17"), {("n0/gpu0", "n0/gpu1"): 0.5})
    with pytest.raises(SolveError, match=r"4352 ranks .* alike"):
        prove(machine, asked(machine, Collective.ALLTOALL))
