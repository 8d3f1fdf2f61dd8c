"""The official cost model: round after round.

round = launch + largest route latency + largest (bytes over a link / its rate). Segments make most rounds alike, so
time is summed over spans of rounds between which nothing starts or ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.simulator.loads import Loads


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """Which transfer runs in which rounds, and how long it keeps which link busy in each.

    Attributes:
        begin: [transfers] first round.
        end: [transfers] the round after the last.
        latency_ns: [transfers] of the route.
        row: [crossings] transfer.
        link: [crossings] link that it crosses.
        busy_ns: [crossings] time in one round.
    """

    begin: np.ndarray
    end: np.ndarray
    latency_ns: np.ndarray
    row: np.ndarray
    link: np.ndarray
    busy_ns: np.ndarray

    @classmethod
    def of(cls, loads: Loads) -> Running:
        """The transfers of one plan."""
        begin = loads.plan.transfers.round
        row, link = loads.routes.incidence(loads.pair)
        return cls(
            begin=begin,
            end=begin + loads.plan.segments,
            latency_ns=loads.routes.latency_ns.ravel()[loads.pair],
            row=row,
            link=link,
            busy_ns=loads.segment_bytes[row] * (1e9 / loads.routes.topology.bytes_per_s[link]),
        )


def price(loads: Loads, launch_ns: float = 0.0) -> tuple[float, int]:
    """(seconds of the plan, rounds that move anything)."""
    return seconds(Running.of(loads), launch_ns)


def seconds(running: Running, launch_ns: float = 0.0) -> tuple[float, int]:
    """(seconds of all rounds, rounds that move anything)."""
    spans = _Spans(running)
    if not spans.count:
        return 0.0, 0
    moving = spans.active > 0
    nanoseconds = launch_ns + spans.latency_ns() + spans.busiest_ns()
    return float((nanoseconds * spans.length)[moving].sum()) * 1e-9, int(spans.length[moving].sum())


def moving_rounds(loads: Loads) -> int:
    """Rounds in which at least one transfer runs."""
    spans = _Spans(Running.of(loads))
    return int(spans.length[spans.active > 0].sum()) if spans.count else 0


class _Spans:
    """Spans of equal rounds: ``edge[i] .. edge[i + 1]``."""

    def __init__(self, running: Running) -> None:
        self.running = running
        edges = np.unique(np.concatenate([running.begin, running.end]))
        self.count = max(len(edges) - 1, 0)
        self.length = np.diff(edges)
        self.first = np.searchsorted(edges, running.begin)
        self.last = np.searchsorted(edges, running.end)
        every = np.ones(len(running.begin), dtype=np.int64)
        self.active = self._running(every) if self.count else np.zeros(0, dtype=np.int64)

    def _running(self, values: np.ndarray) -> np.ndarray:
        """[spans] sum of a per-transfer value over the transfers that run in each span."""
        change = np.bincount(self.first, values, self.count + 1) - np.bincount(self.last, values, self.count + 1)
        return np.rint(np.cumsum(change)[:-1]).astype(np.int64)

    def latency_ns(self) -> np.ndarray:
        """[spans] largest route latency among the running transfers."""
        latency = self.running.latency_ns
        worst = np.zeros(self.count)
        for first, last in np.unique(np.stack([self.first, self.last]), axis=1).T:
            here = latency[(self.first == first) & (self.last == last)].max()
            np.maximum(worst[first:last], here, out=worst[first:last])
        return worst

    def busiest_ns(self) -> np.ndarray:
        """[spans] time of the busiest link in one round of each span."""
        rows, nanoseconds = self.running.row, self.running.busy_ns
        used, column = np.unique(self.running.link, return_inverse=True)
        width = len(used)
        busiest = np.zeros(self.count)
        # in slabs of links, so that memory stays bounded on large machines
        slab = max(1, 20_000_000 // (self.count + 1))
        for low in range(0, width, slab):
            inside = (column >= low) & (column < low + slab)
            size = (min(low + slab, width) - low, self.count + 1)
            change = np.zeros(size)
            cell = (column[inside] - low) * size[1]
            change += np.bincount(cell + self.first[rows[inside]], nanoseconds[inside], size[0] * size[1]).reshape(size)
            change -= np.bincount(cell + self.last[rows[inside]], nanoseconds[inside], size[0] * size[1]).reshape(size)
            np.maximum(busiest, np.cumsum(change, axis=1)[:, :-1].max(axis=0), out=busiest)
        return busiest
