"""Transfers played against the links they need: greedily as time passes, or one after another into the first gap.

As time passes, whoever can start starts, and among those who wait for a link the most urgent: a transfer that needs
many links at once may wait for long. One after another, each takes its links for the first time at which all of them
are free, before or after what others took: that suits routes of many links.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from solver.backend import Stopped
from solver.bound import Problem

BREATH = 4096
"""Steps of playing after which it is asked whether time is up."""
ROUNDING = 1 - 1e-9
"""So much of a transfer must fit into a gap: sums of equal lengths differ in their last digits."""


class Players:
    """Transfers and the links they need; times are in nanoseconds, as in the timeline model.

    Args:
        problem: routes and rates.
        pair: [transfers] row of each route.
        size: [transfers] bytes.
    """

    def __init__(self, problem: Problem, pair: np.ndarray, size: np.ndarray) -> None:
        routes = problem.routes
        ns_per_byte = 1e9 / routes.topology.bytes_per_s
        self._links: list[list[int]] = []
        self._busy: list[list[float]] = []
        for bytes, row in zip(size.tolist(), pair.tolist(), strict=True):
            links = routes.links[routes.starts[row] : routes.starts[row + 1]]
            self._links.append(links.tolist())
            self._busy.append((bytes * ns_per_byte[links]).tolist())
        self._latency = routes.latency_ns.ravel()[pair].tolist()
        self._count = len(routes.topology.links)
        self._least = [math.inf] * self._count
        for mine, times in zip(self._links, self._busy, strict=True):
            for link, busy in zip(mine, times, strict=True):
                self._least[link] = min(self._least[link], busy)

    def play(
        self,
        following: list[list[int]],
        before: list[list[int]],
        urgency: np.ndarray,
        turn: np.ndarray,
        stop: Callable[[], bool],
    ) -> tuple[np.ndarray, np.ndarray]:
        """([transfers] start, [transfers] arrival of each); the smallest urgency, then turn, goes first.

        Raises:
            Stopped: it was told to give up.
        """
        count = len(self._links)
        starts, ends = np.zeros(count), np.zeros(count)
        free = [0.0] * self._count
        waiting: list[list[tuple[int, int]]] = [[] for _ in free]
        missing = [len(sources) for sources in before]
        urgent = np.empty(count, dtype=np.int64)
        urgent[np.lexsort((np.arange(count), turn, urgency))] = np.arange(count)
        place: list[int] = urgent.tolist()
        ready = [(0.0, place[t], t) for t in range(count) if not missing[t]]
        heapq.heapify(ready)
        freed: list[tuple[float, int]] = []

        def try_start(t: int, now: float) -> None:
            latest = max(self._links[t], key=free.__getitem__)
            if free[latest] > now:
                heapq.heappush(waiting[latest], (place[t], t))
                return
            starts[t] = now
            for link, busy in zip(self._links[t], self._busy[t], strict=True):
                free[link] = now + busy
                heapq.heappush(freed, (now + busy, link))
            arrival = now + max(self._busy[t]) + self._latency[t]
            ends[t] = arrival
            for after in following[t]:
                missing[after] -= 1
                if not missing[after]:
                    heapq.heappush(ready, (arrival, place[after], after))

        for step in itertools.count(1):
            if not (ready or freed):
                return starts, ends
            if step % BREATH == 0 and stop():
                raise Stopped
            if ready and (not freed or ready[0][0] < freed[0][0]):
                now, _, t = heapq.heappop(ready)
                try_start(t, now)
                continue
            now, link = heapq.heappop(freed)
            while ready and ready[0][0] <= now:  # those that just got their data compete with those that wait
                _, key, t = heapq.heappop(ready)
                blocked = max(self._links[t], key=free.__getitem__)
                heapq.heappush(waiting[blocked], (key, t))
                heapq.heappush(freed, (max(now, free[blocked]), blocked))
            while waiting[link] and free[link] <= now:
                try_start(heapq.heappop(waiting[link])[1], now)
        raise AssertionError

    def place(
        self, following: list[list[int]], order: np.ndarray, stop: Callable[[], bool]
    ) -> tuple[np.ndarray, np.ndarray]:
        """([transfers] start, [transfers] arrival of each), one after another, each where all its links are free first.

        Args:
            following: transfers that wait for each.
            order: of placing; none before those it waits for.
            stop: asked now and then whether to give up.

        Raises:
            Stopped: it was told to give up.
        """
        count = len(self._links)
        links = [Link(least) for least in self._least]
        starts, ends, ready = [0.0] * count, [0.0] * count, [0.0] * count
        for step, t in enumerate(order.tolist(), 1):
            if step % BREATH == 0 and stop():
                raise Stopped
            needed = [(links[link], busy) for link, busy in zip(self._links[t], self._busy[t], strict=True)]
            start, agreed = ready[t], 0
            while agreed < len(needed):  # until no link moves it any more
                for link, busy in needed:
                    first = link.first_gap(start, busy)
                    agreed = agreed + 1 if first == start else 1
                    start = first
                    if agreed == len(needed):
                        break
            for link, busy in needed:
                link.take(start, busy)
            starts[t] = start
            ends[t] = end = start + max(self._busy[t]) + self._latency[t]
            for after in following[t]:
                if end > ready[after]:
                    ready[after] = end
        return np.array(starts), np.array(ends)


class Link:
    """When one link is busy: spans in order; gaps in which nothing fits count as busy.

    Args:
        least: nanoseconds of the shortest transfer.
    """

    __slots__ = ("_begins", "_ends", "_least")

    def __init__(self, least: float) -> None:
        self._least = least * ROUNDING
        self._begins: list[float] = []
        self._ends: list[float] = []

    def first_gap(self, start: float, busy: float) -> float:
        """The first time from ``start`` on at which it is free for so long."""
        at = bisect_right(self._ends, start)
        while at < len(self._ends) and self._begins[at] < start + busy * ROUNDING:
            start = self._ends[at]
            at += 1
        return start

    def take(self, start: float, busy: float) -> None:
        """Be busy from ``start`` on."""
        begins, ends, end = self._begins, self._ends, start + busy
        first = after = bisect_right(ends, start)
        if first and start - ends[first - 1] < self._least:
            first -= 1
            start = begins[first]
        if after < len(ends) and begins[after] - end < self._least:
            end = ends[after]
            after += 1
        begins[first:after] = [start]
        ends[first:after] = [end]
