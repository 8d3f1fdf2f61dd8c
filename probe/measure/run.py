"""The measurement itself: every rank runs it, rank 0 decides when time is up, and all get the same result."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from probe.measure.fit import Fit, fit
from probe.measure.transport import Transport
from synth.topology import Routes, Topology

ACKNOWLEDGEMENT = 1
"""Bytes of the answer to a measured message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a measurement may go, so that it harms no job beside it.

    Attributes:
        seconds: for everything.
        bytes: the largest message.
        repetitions: timings of each size.
    """

    seconds: float = 20.0
    bytes: int = 16 * 2**20
    repetitions: int = 5

    @property
    def sizes(self) -> tuple[int, ...]:
        """Small for latency, large for rate, and one between to see whether a line fits."""
        wanted = (1024, max(4096, self.bytes // 16), self.bytes)
        return tuple(sorted({size for size in wanted if size <= self.bytes} | {self.bytes}))


@dataclass(frozen=True, slots=True)
class Edge:
    """One measured route.

    Attributes:
        src: rank that sends.
        dst: rank that receives.
        fit: its alpha and beta.
        wrong_bytes: bytes that arrived wrong.
    """

    src: int
    dst: int
    fit: Fit
    wrong_bytes: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured.

    Attributes:
        edges: each ordered pair that was timed alone.
        together_seconds: all direct pairs at once, as plans use links; None if it was not reached.
        together_bytes: of each message of that exchange.
        together_wrong: bytes that arrived wrong then.
        skipped: ordered pairs that were not reached in time.
        seconds: how long it took.
    """

    edges: tuple[Edge, ...]
    together_seconds: float | None
    together_bytes: int
    together_wrong: int
    skipped: tuple[tuple[int, int], ...]
    seconds: float

    def dumps(self) -> str:
        """As JSON text, exactly."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Measurement:
        """Read what :meth:`dumps` wrote."""
        values = json.loads(text)
        edges = tuple(Edge(e["src"], e["dst"], Fit(**e["fit"]), e["wrong_bytes"]) for e in values.pop("edges"))
        skipped = tuple((a, b) for a, b in values.pop("skipped"))
        return cls(edges=edges, skipped=skipped, **values)


def measure(
    transport: Transport,
    topology: Topology,
    ranks: tuple[str, ...],
    limits: Limits,
    *,
    progress: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Time each route alone, one pair at a time, then all direct ones at once; every rank of the transport calls this.

    Pairs whose route crosses one link only come first, one of each link class before the rest, so that a short time
    limit still sees every class.

    Args:
        transport: among the ranks.
        topology: claims of the machine; decides the order.
        ranks: GPU of each rank.
        limits: time and size.
        progress: told on rank 0.
        clock: seconds; a fake in tests.
    """
    started = clock()
    order = _order(topology, ranks)
    edges: list[Edge] = []
    skipped: list[tuple[int, int]] = []
    for number, (a, b) in enumerate(order):
        # all ranks follow rank 0's clock, or some would wait for ranks that stopped
        elapsed = _told(transport, clock() - started)
        if elapsed > limits.seconds * 0.8 or skipped:
            skipped.append((a, b))
            continue
        if transport.rank == 0:
            progress(f"measuring {ranks[a]} to {ranks[b]} ({number + 1} of {len(order)})")
        edge = _pair(transport, a, b, limits, clock)
        edges.append(edge)
    together, wrong = None, 0
    size = limits.sizes[-1]
    direct = [(a, b) for a, b in order if a < transport.size and b < transport.size]
    if direct and _told(transport, clock() - started) < limits.seconds:
        if transport.rank == 0:
            progress("measuring all pairs at once")
        together, wrong = _together(transport, _joined(topology, ranks), size, limits, clock)
    return Measurement(
        edges=tuple(edges),
        together_seconds=together,
        together_bytes=size,
        together_wrong=wrong,
        skipped=tuple(skipped),
        seconds=_told(transport, clock() - started),
    )


def _told(transport: Transport, value: float) -> float:
    """Rank 0's value, on every rank."""
    return float(struct.unpack("<d", transport.gather(struct.pack("<d", value))[0])[0])


def _order(topology: Topology, ranks: tuple[str, ...]) -> list[tuple[int, int]]:
    routes = Routes.among(topology, ranks)
    pairs = [(a, b) for a in range(len(ranks)) for b in range(len(ranks)) if a != b and routes.exists[a, b]]
    kinds: dict[tuple[str, ...], int] = {}
    keys = []
    for a, b in pairs:
        kind = tuple(topology.links[p].link_class.value for p in routes.route(a, b))
        seen = kinds[kind] = kinds.get(kind, 0) + 1
        keys.append((seen > 1, len(kind), a, b))
    return [pair for _, pair in sorted(zip(keys, pairs, strict=True))]


def _joined(topology: Topology, ranks: tuple[str, ...]) -> list[tuple[int, int]]:
    """Pairs that plans use directly: those with the fewest links on their route, from each rank."""
    routes = Routes.among(topology, ranks)
    count = range(len(ranks))
    hops = {(a, b): len(routes.route(a, b)) for a in count for b in count if routes.exists[a, b]}
    least = {a: min(h for (x, _), h in hops.items() if x == a) for a in {a for a, _ in hops}}
    return [pair for pair, links in hops.items() if links == least[pair[0]]]


def _pair(transport: Transport, a: int, b: int, limits: Limits, clock: Callable[[], float]) -> Edge:
    """Messages from a to b, each answered with a few bytes, so that only the way from a to b decides the rate.

    Half of what a message of no bytes would take is the latency; the other ranks wait in the gather.
    """
    timings: dict[int, list[float]] = {}
    wrong = 0
    for size in limits.sizes:
        timings[size] = []
        for repetition in range(limits.repetitions + 1):  # the first one warms up
            seconds = 0.0
            if transport.rank in (a, b):
                other = b if transport.rank == a else a
                start = clock()
                if transport.rank == a:
                    transport.exchange([(other, size)], [])
                    transport.exchange([], [(other, ACKNOWLEDGEMENT)])
                else:
                    transport.exchange([], [(other, size)])
                    transport.exchange([(other, ACKNOWLEDGEMENT)], [])
                seconds = clock() - start
                if repetition == 0:
                    wrong += transport.wrong([(other, size if transport.rank == b else ACKNOWLEDGEMENT)])
            if repetition and transport.rank == a:
                timings[size].append(seconds)
    mine = fit(timings) if transport.rank == a else Fit(0.0, 0.0, 0.0, 0.0, 0)
    packed = struct.pack(
        "<6d", mine.alpha_ns / 2, mine.alpha_spread_ns / 2, mine.bytes_per_s, mine.rate_spread, mine.samples, wrong
    )
    rows = [struct.unpack("<6d", row) for row in transport.gather(packed)]
    told = rows[a]
    return Edge(a, b, Fit(told[0], told[1], told[2], told[3], int(told[4])), int(rows[a][5] + rows[b][5]))


def _together(
    transport: Transport, pairs: list[tuple[int, int]], size: int, limits: Limits, clock: Callable[[], float]
) -> tuple[float, int]:
    """Median time of one exchange on all pairs at once, and bytes that arrived wrong."""
    sends = [(b, size) for a, b in pairs if a == transport.rank]
    receives = [(a, size) for a, b in pairs if b == transport.rank]
    seconds = []
    wrong = 0
    for repetition in range(limits.repetitions + 1):
        transport.gather(b"go")
        start = clock()
        transport.exchange(sends, receives)
        taken = clock() - start
        rows = [struct.unpack("<d", row)[0] for row in transport.gather(struct.pack("<d", taken))]
        if repetition == 0:
            counted = transport.gather(struct.pack("<q", transport.wrong(receives)))
            wrong = sum(struct.unpack("<q", row)[0] for row in counted)
        else:
            seconds.append(max(rows))
    return sorted(seconds)[len(seconds) // 2], wrong
