"""Measuring: fits, order, limits, wrong data and what becomes of a topology, on transports with a known truth."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.measure import start
from probe.measure.apply import apply, table
from probe.measure.fit import Fit, fit
from probe.measure.run import Edge, Limits, Measurement, measure
from probe.measure.transport import OverCommunicator, pattern
from runtime.communicators.local import LocalWorld
from synth.topology import Confidence, Routes, Topology, catalog

SMALL = Limits(seconds=60, bytes=65536, repetitions=2)


@given(st.floats(500, 50_000), st.floats(1e9, 900e9))
def test_a_line_is_found_again(alpha_ns, rate):
    sizes = (1024, 1 << 20, 16 << 20)
    found = fit({size: [alpha_ns * 1e-9 + size / rate] * 3 for size in sizes})
    assert found.alpha_ns == pytest.approx(alpha_ns, rel=1e-3)
    assert found.bytes_per_s == pytest.approx(rate, rel=1e-3)
    assert found.rate_spread == pytest.approx(0, abs=rate * 1e-6)


def test_one_disturbed_repetition_changes_the_spread_and_not_the_fit():
    sizes = (1024, 1 << 20, 16 << 20)
    timings = {size: [1e-6 + size / 100e9] * 4 + [10 * (1e-6 + size / 100e9)] for size in sizes}
    found = fit(timings)
    assert found.bytes_per_s == pytest.approx(100e9, rel=1e-3)


class World:
    """Ranks as threads whose time is the one that the topology's own cost says, so that measuring must find it."""

    def __init__(self, topology: Topology, ranks: Sequence[str], *, wrong: tuple[int, int] | None = None) -> None:
        self.topology, self.routes = topology, Routes.among(topology, ranks)
        self.world = LocalWorld(len(ranks), deadline=20)
        self.times = [0.0] * len(ranks)
        self.wrong_pair = wrong

    def transport(self, rank: int) -> Simulated:
        return Simulated(self, rank)


class Simulated:
    """One rank of a :class:`World`."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.inner = OverCommunicator(world.world.communicator(rank), SMALL.bytes)
        self.size = self.inner.size

    def exchange(self, sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]) -> None:
        self.inner.exchange(sends, receives)
        for a, b, count in [(self.rank, p, n) for p, n in sends] + [(p, self.rank, n) for p, n in receives]:
            route = [self.world.topology.links[int(p)] for p in self.world.routes.route(a, b)]
            latency = sum(link.latency_ns for link in route) * 1e-9
            self.world.times[self.rank] += latency + count / min(link.bytes_per_s for link in route)

    def wrong(self, receives: Sequence[tuple[int, int]]) -> int:
        bad = self.world.wrong_pair
        return self.inner.wrong(receives) + sum(7 for peer, _ in receives if bad == (peer, self.rank))

    def gather(self, data: bytes) -> list[bytes]:
        return self.inner.gather(data)

    def clock(self) -> float:
        return self.world.times[self.rank]


def measured(machine: Topology, truth: Topology, limits: Limits = SMALL, **options: object) -> Measurement:
    """Measure ``truth`` with ``machine`` as the claim; all ranks must agree."""
    world = World(truth, machine.gpus, **options)  # type: ignore[arg-type]
    results: list[Measurement | None] = [None] * len(machine.gpus)

    def rank(number: int) -> None:
        transport = world.transport(number)
        results[number] = measure(transport, machine, machine.gpus, limits, clock=transport.clock)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(machine.gpus))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert None not in results
    first = results[0]
    assert first is not None
    assert all(result is not None and result.edges == first.edges for result in results)
    return first


def asymmetric() -> Topology:
    return catalog.build("asym8")


def test_what_is_measured_is_what_the_links_can_do():
    machine = asymmetric()
    found = measured(machine, machine)
    assert len(found.edges) == 8 * 7
    assert found.skipped == ()
    better = apply(machine, machine.gpus, found)
    for link, original in zip(better.links, machine.links, strict=True):
        assert link.bytes_per_s == pytest.approx(original.bytes_per_s, rel=1e-3)
        assert link.confidence is Confidence.MEASURED
    assert "link-below-claim" not in {f.code for f in better.findings}
    assert len(table(machine, machine.gpus, found).splitlines()) == 8 * 7 + 2


def test_what_launching_costs_is_not_taken_for_latency():
    machine = asymmetric()
    routes = Routes.among(machine)
    edges = tuple(
        Edge(a, b, Fit(9000 + float(routes.latency_ns[a, b]), 0.0, 30e9, 0.0, 2), 0)
        for a in range(8)
        for b in range(8)
        if a != b
    )
    found = Measurement(edges, None, 0, 0, (), 1.0)
    better = apply(machine, machine.gpus, found)
    assert [link.latency_ns for link in better.links] == [link.latency_ns for link in machine.links]
    assert "--launch-ns 9000" in table(machine, machine.gpus, found)


def test_a_link_far_below_its_claim_is_degraded_and_found():
    machine = asymmetric()
    slow = tuple(replace(k, bytes_per_s=k.bytes_per_s / 10) if k.src == "n0/gpu3" else k for k in machine.links)
    found = measured(machine, replace(machine, links=slow))
    better = apply(machine, machine.gpus, found)
    rate = {(link.src, link.dst): link.bytes_per_s for link in better.links}
    assert rate["n0/gpu3", "n0/nvsw0"] == pytest.approx(30e9, rel=0.05)
    assert rate["n0/gpu2", "n0/nvsw0"] == pytest.approx(300e9, rel=0.05)
    assert "n0/gpu3:n0/gpu0" in {f.subject for f in better.findings if f.code == "link-below-claim"}


def test_time_is_bounded_and_each_class_of_route_comes_first():
    machine = asymmetric()
    found = measured(machine, machine, replace(SMALL, seconds=60e-6))
    assert found.skipped
    assert len(found.edges) + len(found.skipped) == 8 * 7
    routes = Routes.among(machine)
    kinds = [{machine.links[int(p)].link_class for p in routes.route(e.src, e.dst)} for e in found.edges[:2]]
    assert kinds[0] != kinds[1]
    assert "measure-skipped" in {f.code for f in apply(machine, machine.gpus, found).findings}


def test_wrong_bytes_name_the_pair():
    machine = asymmetric()
    found = measured(machine, machine, wrong=(2, 5))
    subjects = {f.subject for f in apply(machine, machine.gpus, found).findings if f.code == "data-corrupt"}
    assert {"n0/gpu2:n0/gpu5", "n0/gpu5:n0/gpu2"} <= subjects


def test_patterns_differ_between_senders_and_places():
    assert (pattern(0, 4096) != pattern(1, 4096)).mean() > 0.9
    assert (pattern(0, 4096)[1:] != pattern(0, 4095)).mean() > 0.9


def test_data_that_did_not_arrive_is_counted():
    world = LocalWorld(2)
    transport = OverCommunicator(world.communicator(0), 1000)
    assert transport.wrong([(1, 1000)]) > 900
    transport.target[:1000] = pattern(1, 1000)
    assert transport.wrong([(1, 1000)]) == 0


def test_results_survive_their_file():
    edge = Edge(0, 1, Fit(700.5, 1.0, 50e9, 1e6, 10), 0)
    result = Measurement((edge,), 0.5, 1024, 0, ((1, 0),), 2.0)
    assert Measurement.loads(result.dumps()) == result


def test_the_largest_message_is_respected():
    assert Limits(bytes=4096).sizes == (1024, 4096)
    assert max(Limits(bytes=100).sizes) == 100


def test_one_gpu_and_a_missing_transport_are_skipped_with_the_reason():
    alone = catalog.build("asym8")
    one = Topology(name="one", devices=alone.devices[:1], links=())
    told, text = start.measured(one, Limits())
    assert text == ""
    assert [f.code for f in told.findings] == ["measure-skipped"]
    told, _ = start.measured(alone, Limits(seconds=1), transport="no-such")
    assert [f.code for f in told.findings] == ["measure-skipped"]


@pytest.mark.mpi
def test_real_processes_measure_real_messages():
    machine = catalog.build("ndv2x1")
    four = machine.gpus[:3]
    found = start.run(machine, four, Limits(seconds=10, bytes=65536, repetitions=2), transport="mpi")
    assert {(e.src, e.dst) for e in found.edges} | set(found.skipped) == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }
    assert sum(e.wrong_bytes for e in found.edges) == 0
    assert found.together_wrong == 0
    assert all(np.isfinite(e.fit.bytes_per_s) for e in found.edges)
