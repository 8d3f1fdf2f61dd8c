"""Hypothesis strategies: topologies that hold surprises, and demands on them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from synth.collective import Collective, Demand
from synth.topology import Device, DeviceKind, Link, LinkClass, Topology

RATES = (12.5e9, 25e9, 50e9, 100e9, 450e9)
LATENCIES = (0.0, 500.0, 700.0, 2600.0)


@st.composite
def topologies(draw: st.DrawFn, *, least: int = 2, most: int = 8) -> Topology:
    """Connected machines of some GPUs in up to three nodes, with switches, NICs, uneven rates and missing directions.

    Every GPU can reach every other, if need be through GPUs.

    Args:
        draw: given by hypothesis.
        least: fewest GPUs.
        most: most GPUs.
    """
    count = draw(st.integers(least, most))
    nodes = draw(st.integers(1, min(3, count)))
    gpus = [Device(id=f"n{g % nodes}/gpu{g // nodes}", kind=DeviceKind.GPU, node=f"n{g % nodes}") for g in range(count)]
    devices = list(gpus)
    links: dict[tuple[str, str], Link] = {}

    def join(a: str, b: str, *, both: bool = True, link_class: LinkClass = LinkClass.NVLINK) -> None:
        for src, dst in ((a, b), (b, a)) if both else ((a, b),):
            rate, latency = draw(st.sampled_from(RATES)), draw(st.sampled_from(LATENCIES))
            links[src, dst] = Link(src=src, dst=dst, link_class=link_class, bytes_per_s=rate, latency_ns=latency)

    # a ring in one direction keeps everything connected whatever else is drawn
    ring = draw(st.permutations(range(count)))
    for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
        join(gpus[here].id, gpus[there].id, both=draw(st.booleans()))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] != pair[1])
    for a, b in draw(st.lists(pairs, max_size=2 * count, unique=True)):
        join(gpus[a].id, gpus[b].id, both=draw(st.booleans()))
    for number in range(draw(st.integers(0, 2))):
        switch = Device(id=f"switch{number}", kind=draw(st.sampled_from([DeviceKind.SWITCH, DeviceKind.NIC])))
        devices.append(switch)
        for member in draw(st.lists(st.sampled_from(gpus), min_size=2, max_size=count, unique_by=lambda gpu: gpu.id)):
            join(member.id, switch.id, link_class=LinkClass.NETWORK)
    return Topology(name="generated", devices=tuple(devices), links=tuple(links.values()))


@st.composite
def byte_matrices(draw: st.DrawFn, ranks: int) -> np.ndarray:
    """[ranks, ranks] bytes: zeros, hot rows and columns, ratios up to a million."""
    entry = st.one_of(st.just(0), st.integers(0, 1000), st.integers(0, 10**9))
    rows = draw(st.lists(st.lists(entry, min_size=ranks, max_size=ranks), min_size=ranks, max_size=ranks))
    matrix = np.array(rows, dtype=np.float64)
    hot = draw(st.integers(0, ranks - 1))
    match draw(st.sampled_from(["as it is", "hot row", "hot column"])):
        case "hot row":
            matrix[hot] *= 1000
        case "hot column":
            matrix[:, hot] *= 1000
    return matrix


@st.composite
def demands(draw: st.DrawFn, ranks: int, *, collectives: tuple[Collective, ...] = tuple(Collective)) -> Demand:
    """Any collective among so many ranks, at any size, zero included."""
    collective = draw(st.sampled_from(collectives))
    size = draw(st.sampled_from([0, 1, 1000, 10**6, 10**9]))
    if collective is Collective.ALLTOALL and draw(st.booleans()):
        matrix = draw(byte_matrices(ranks))
        return Demand(collective=collective, ranks=ranks, bytes=int(matrix.sum(axis=1).max()), matrix=matrix)
    pairs: tuple[tuple[int, int], ...] = ()
    if collective is Collective.SENDRECV:
        every = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        pairs = tuple(draw(st.lists(st.sampled_from(every), min_size=1, max_size=2 * ranks, unique=True)))
    root = draw(st.integers(0, ranks - 1)) if collective.rooted else None
    return Demand(collective=collective, ranks=ranks, bytes=size, root=root, pairs=pairs)
