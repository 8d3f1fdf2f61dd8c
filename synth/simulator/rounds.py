"""The official cost model: round after round.

round = launch + largest route latency + largest (bytes over a link / its rate). Segments make most rounds alike, so
time is summed over spans of rounds between which nothing starts or ends.
"""

from __future__ import annotations

import numpy as np

from synth.simulator.loads import Loads


def price(loads: Loads, launch_ns: float = 0.0) -> tuple[float, int]:
    """(seconds of the plan, rounds that move anything)."""
    spans = _Spans(loads)
    if not spans.count:
        return 0.0, 0
    moving = spans.active > 0
    nanoseconds = launch_ns + spans.latency_ns() + spans.busiest_ns()
    return float((nanoseconds * spans.length)[moving].sum()) * 1e-9, int(spans.length[moving].sum())


def moving_rounds(loads: Loads) -> int:
    """Rounds in which at least one transfer runs."""
    spans = _Spans(loads)
    return int(spans.length[spans.active > 0].sum()) if spans.count else 0


class _Spans:
    """Spans of equal rounds: ``edge[i] .. edge[i + 1]``."""

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        begin = loads.plan.transfers.round
        edges = np.unique(np.concatenate([begin, begin + loads.plan.segments]))
        self.count = max(len(edges) - 1, 0)
        self.length = np.diff(edges)
        self.first = np.searchsorted(edges, begin)
        self.last = np.searchsorted(edges, begin + loads.plan.segments)
        self.active = self._running(np.ones(len(begin), dtype=np.int64)) if self.count else np.zeros(0, dtype=np.int64)

    def _running(self, values: np.ndarray) -> np.ndarray:
        """[spans] sum of a per-transfer value over the transfers that run in each span."""
        change = np.bincount(self.first, values, self.count + 1) - np.bincount(self.last, values, self.count + 1)
        return np.rint(np.cumsum(change)[:-1]).astype(np.int64)

    def latency_ns(self) -> np.ndarray:
        """[spans] largest route latency among the running transfers."""
        latency = self.loads.routes.latency_ns.ravel()[self.loads.pair]
        worst = np.zeros(self.count)
        for first, last in np.unique(np.stack([self.first, self.last]), axis=1).T:
            here = latency[self.first == first].max()
            np.maximum(worst[first:last], here, out=worst[first:last])
        return worst

    def busiest_ns(self) -> np.ndarray:
        """[spans] time of the busiest link in one round of each span."""
        loads = self.loads
        rows, links = loads.routes.incidence(loads.pair)
        used, column = np.unique(links, return_inverse=True)
        nanoseconds = loads.segment_bytes[rows] * (1e9 / loads.routes.topology.bytes_per_s[links])
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
