"""Clusters of uneven nodes and of GPUs of different generations, links dead or slow: plans are valid, bounds hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import portfolio
from solver.bound import Problem, generate
from synth.collective import Collective, Demand
from synth.errors import TopologyError
from synth.testing import assert_plan_implements
from synth.topology import Routes, Topology
from synth.topology.degrade import degrade
from synth.topology.model import Device, DeviceKind, Link, LinkClass

GENERATIONS = {"a100": (300 * 10**9, 25 * 10**9), "h100": (450 * 10**9, 50 * 10**9), "b200": (900 * 10**9, 100 * 10**9)}
"""Bytes per second of a GPU's NVLinks and of its NIC."""
NODES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(sorted(GENERATIONS))), min_size=2, max_size=4)


def cluster(nodes: list[tuple[int, str]]) -> Topology:
    """Nodes of so many GPUs of a generation: a switch inside, a NIC per GPU, one fabric."""
    devices = [Device(id="fabric", kind=DeviceKind.SWITCH)]
    links: list[Link] = []
    for node, (gpus, generation) in enumerate(nodes):
        nvlink, nic = GENERATIONS[generation]
        devices.append(Device(id=f"n{node}/switch", kind=DeviceKind.SWITCH, node=f"n{node}"))
        for gpu in range(gpus):
            ids = f"n{node}/gpu{gpu}", f"n{node}/nic{gpu}"
            devices.append(Device(id=ids[0], kind=DeviceKind.GPU, node=f"n{node}", model=generation))
            devices.append(Device(id=ids[1], kind=DeviceKind.NIC, node=f"n{node}"))
            for a, b, kind, rate, latency in (
                (ids[0], f"n{node}/switch", LinkClass.NVLINK, nvlink, 350),
                (ids[0], ids[1], LinkClass.PCIE, nic, 300),
                (ids[1], "fabric", LinkClass.NETWORK, nic, 1300),
            ):
                links += [
                    Link(src=src, dst=dst, link_class=kind, bytes_per_s=rate, latency_ns=latency)
                    for src, dst in ((a, b), (b, a))
                ]
    return Topology(name="cluster", devices=tuple(devices), links=tuple(links))


@settings(max_examples=25, deadline=None)
@given(nodes=NODES, collective=st.sampled_from(list(Collective)), data=st.data())
def test_every_cluster_has_a_valid_plan_no_faster_than_its_bound(
    nodes: list[tuple[int, str]], collective: Collective, data: st.DataObject
) -> None:
    whole = cluster(nodes)
    pairs = sorted({tuple(sorted((link.src, link.dst))) for link in whole.links})
    factors = data.draw(st.dictionaries(st.sampled_from(pairs), st.sampled_from([0.0, 0.25, 0.5]), max_size=2))
    machine = degrade(whole, factors)
    count = len(machine.gpus)
    pair = ((0, count - 1),) if collective is Collective.SENDRECV else ()
    root = data.draw(st.integers(0, count - 1)) if collective.rooted else None
    demand = Demand(collective=collective, ranks=count, bytes=10**8, root=root, pairs=pair)
    try:
        Routes.among(machine).require_connected()
    except TopologyError:
        with pytest.raises(TopologyError, match="cannot reach"):
            portfolio.solve(machine, demand)
        return
    solved = portfolio.solve(machine, demand)
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.bound.seconds <= solved.predicted_seconds * (1 + 1e-9)
    again = portfolio.solve(machine, demand, start=solved.plan)
    assert_plan_implements(again.plan, machine, demand)
    assert again.bound.certificate.bound_ns == pytest.approx(solved.bound.certificate.bound_ns, rel=1e-3)


@pytest.mark.parametrize("collective", [Collective.ALLTOALL, Collective.ALLGATHER, Collective.ALLREDUCE])
@pytest.mark.parametrize(
    "nodes",
    [
        [(8, "h100"), (8, "h100"), (8, "h100"), (4, "h100")],
        [(8, "h100"), (8, "h100"), (8, "a100"), (8, "a100")],
        [(8, "b200"), (8, "h100"), (8, "h100"), (8, "h100")],
    ],
)
def test_symmetry_changes_no_optimum_of_mixed_clusters(nodes: list[tuple[int, str]], collective: Collective) -> None:
    machine = cluster(nodes)
    routes = Routes.among(machine)
    demand = Demand(collective=collective, ranks=routes.ranks, bytes=10**9)
    few, every = Problem.of(routes, demand, symmetric=True), Problem.of(routes, demand)
    assert few.group is not None
    assert generate(few).seconds == pytest.approx(generate(every).seconds, rel=5e-4)
    solved = portfolio.solve(machine, demand)
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.gap < 0.15
