"""The timeline model: no rounds, no launch cost; the plan's order is the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from synth.errors import LimitError
from synth.simulator.loads import Loads

MOST_EVENTS = 20_000_000
"""Segment-transfers of the longest timeline that is played, about half a minute."""


class Event(NamedTuple):
    """One segment on its way: times in nanoseconds from the start of the plan."""

    transfer: int
    segment: int
    start_ns: float
    busy_ns: float
    arrival_ns: float


def finish(loads: Loads) -> float:
    """Seconds until the last segment has arrived."""
    return max((event.arrival_ns for event in events(loads)), default=0.0) * 1e-9


def events(loads: Loads) -> Iterator[Event]:
    """Play all segment-transfers in the order (round + segment, src, dst, chunk).

    Raises:
        LimitError: there are more than ``MOST_EVENTS``.
    """
    plan, routes = loads.plan, loads.routes
    transfers, segments = plan.transfers, plan.segments
    count = len(transfers)
    if count * segments > MOST_EVENTS:
        raise LimitError(
            f"plan: its timeline has {count * segments} segment-transfers; at most {MOST_EVENTS} are played",
            subject="segments",
        )
    transfer = np.repeat(np.arange(count), segments)
    segment = np.tile(np.arange(segments), count)
    order = np.lexsort(
        (
            transfers.chunk[transfer],
            transfers.dst[transfer],
            transfers.src[transfer],
            transfers.round[transfer] + segment,
        )
    )
    ranks = len(plan.ranks)
    holders, place = np.unique(
        np.concatenate([transfers.chunk * ranks + transfers.src, transfers.chunk * ranks + transfers.dst]),
        return_inverse=True,
    )
    ready = [0.0] * (len(holders) * segments)
    free = [0.0] * len(routes.topology.links)
    ns_per_byte = 1e9 / routes.topology.bytes_per_s
    latency = routes.latency_ns.ravel()[loads.pair].tolist()
    paths: list[list[tuple[int, float]]] = []
    longest: list[float] = []
    for size, pair in zip(loads.segment_bytes.tolist(), loads.pair.tolist(), strict=True):
        links = routes.links[routes.starts[pair] : routes.starts[pair + 1]]
        occupied = (size * ns_per_byte[links]).tolist()
        paths.append(list(zip(links.tolist(), occupied, strict=True)))
        longest.append(max(occupied))
    held = (place[:count] * segments).tolist()
    given = (place[count:] * segments).tolist()
    for t, k in zip(transfer[order].tolist(), segment[order].tolist(), strict=True):
        start = ready[held[t] + k]
        for link, _ in paths[t]:
            if free[link] > start:
                start = free[link]
        for link, busy in paths[t]:
            free[link] = start + busy
        arrival = start + longest[t] + latency[t]
        slot = given[t] + k
        if arrival > ready[slot]:
            ready[slot] = arrival
        yield Event(t, k, start, longest[t], arrival)
