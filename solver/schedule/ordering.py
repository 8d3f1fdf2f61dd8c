"""Ordering for the timeline model: who goes first on every link, found by playing the schedule.

The timeline model takes transfers in the order of their rounds and never lets one overtake another, so a bad order
blocks links that others need. Here every chunk is cut into pieces of its own, the pieces are played greedily (whoever
can start earliest, and among those who wait for a link the one with the longest way still to go), and the order of
their starts becomes the order of rounds. Source: list scheduling, Graham, 1966.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from solver.bound import Problem
from solver.schedule.draft import Draft, Task
from synth.plan import Chunks, Plan, Transfers, expand
from synth.plan.sizes import chunk_bytes

PIECES = (1, 2, 4, 8, 16, 32, 64)
MAX_TRANSFERS = 20_000
"""More pieces would make the document too large and take too long to play."""


def ordered(task: Task, draft: Draft) -> Iterator[Draft]:
    """The same routes cut into more and more pieces, each played and ordered; stops when more pieces do not help."""
    problem = task.problem
    plan = expand(draft.plan(problem))
    best = float("inf")
    for pieces in PIECES:
        if task.over or len(plan.transfers) * pieces > MAX_TRANSFERS:
            return
        order, seconds = play(problem, plan, pieces)
        if seconds >= best * 0.999:
            return
        best = seconds
        yield order


def play(problem: Problem, plan: Plan, pieces: int) -> tuple[Draft, float]:
    """(the plan cut into pieces in the order of their starts, seconds it takes)."""
    chunks, transfers = plan.chunks, plan.transfers
    count, ranks = len(chunks), len(plan.ranks)
    size = chunk_bytes(plan, problem.demand)[transfers.chunk] / pieces
    piece = np.repeat(np.arange(pieces), len(transfers))
    tiled = {name: np.tile(getattr(transfers, name), pieces) for name in transfers.__slots__}
    tiled["chunk"] = tiled["chunk"] + piece * count
    starts, seconds = _Player(problem, tiled, np.tile(size, pieces), ranks).run()
    _, round = np.unique(starts, return_inverse=True)
    tiled["round"] = _after_sources(tiled, round, ranks)
    return (
        Draft(
            chunks=Chunks(*(np.tile(getattr(chunks, name), pieces) for name in chunks.__slots__)),
            transfers=Transfers(**tiled).sorted(),
            denominator=plan.denominator * pieces,
            whole=True,
        ),
        seconds,
    )


def _after_sources(columns: dict[str, np.ndarray], round: np.ndarray, ranks: int) -> np.ndarray:
    """Rounds made strictly later than those they wait for: pieces of no bytes over links of no latency take no time."""
    order = np.argsort(columns["round"], kind="stable")
    arrived: dict[int, int] = {}
    rounds = round.astype(np.int64).tolist()
    chunk, src, dst = (columns[name].tolist() for name in ("chunk", "src", "dst"))
    for t in order.tolist():
        rounds[t] = max(rounds[t], arrived.get(chunk[t] * ranks + src[t], -1) + 1)
        slot = chunk[t] * ranks + dst[t]
        arrived[slot] = max(arrived.get(slot, -1), rounds[t])
    return np.array(rounds, dtype=np.int64)


class _Player:
    """Plays transfers against the links; times are in nanoseconds, as in the timeline model."""

    def __init__(self, problem: Problem, columns: dict[str, np.ndarray], size: np.ndarray, ranks: int) -> None:
        routes = problem.routes
        pair = columns["src"] * ranks + columns["dst"]
        ns_per_byte = 1e9 / routes.topology.bytes_per_s
        self._count = len(pair)
        self._links: list[list[int]] = []
        self._busy: list[list[float]] = []
        for bytes, row in zip(size.tolist(), pair.tolist(), strict=True):
            links = routes.links[routes.starts[row] : routes.starts[row + 1]]
            self._links.append(links.tolist())
            self._busy.append((bytes * ns_per_byte[links]).tolist())
        self._latency = routes.latency_ns.ravel()[pair].tolist()
        self._free = [0.0] * len(routes.topology.links)
        self._next, self._missing = _dependencies(columns, ranks)
        ahead = _ways_to_go(columns["round"], self._next)
        # among equals, neighbours at different distances first, so that not everybody sends to the same rank
        turn = ((columns["dst"] - columns["src"]) % ranks).tolist()
        self._urgency = [(-a, t) for a, t in zip(ahead, turn, strict=True)]

    def run(self) -> tuple[np.ndarray, float]:
        """([transfers] start of each, seconds until all has arrived)."""
        starts = np.zeros(self._count)
        waiting: list[list[tuple[tuple[int, int], int]]] = [[] for _ in self._free]
        missing = list(self._missing)
        finish = 0.0
        ready = [(0.0, self._urgency[t], t) for t in range(self._count) if not missing[t]]
        heapq.heapify(ready)
        freed: list[tuple[float, int]] = []

        def try_start(t: int, now: float) -> bool:
            nonlocal finish
            latest = max(self._links[t], key=self._free.__getitem__)
            if self._free[latest] > now:
                heapq.heappush(waiting[latest], (self._urgency[t], t))
                return False
            starts[t] = now
            for link, busy in zip(self._links[t], self._busy[t], strict=True):
                self._free[link] = now + busy
                heapq.heappush(freed, (now + busy, link))
            arrival = now + max(self._busy[t]) + self._latency[t]
            finish = max(finish, arrival)
            for following in self._next[t]:
                missing[following] -= 1
                if not missing[following]:
                    heapq.heappush(ready, (arrival, self._urgency[following], following))
            return True

        while ready or freed:
            if ready and (not freed or ready[0][0] < freed[0][0]):
                now, _, t = heapq.heappop(ready)
                try_start(t, now)
                continue
            now, link = heapq.heappop(freed)
            while ready and ready[0][0] <= now:  # those that just got their data compete with those that wait
                _, urgency, t = heapq.heappop(ready)
                blocked = max(self._links[t], key=self._free.__getitem__)
                heapq.heappush(waiting[blocked], (urgency, t))
                heapq.heappush(freed, (max(now, self._free[blocked]), blocked))
            while waiting[link] and self._free[link] <= now:
                try_start(heapq.heappop(waiting[link])[1], now)
        return starts, finish * 1e-9


def _dependencies(columns: dict[str, np.ndarray], ranks: int) -> tuple[list[list[int]], list[int]]:
    """(transfers that wait for each transfer, how many each waits for): data must have come in before it goes on."""
    chunk, src, dst, round = (columns[name].tolist() for name in ("chunk", "src", "dst", "round"))
    into: dict[int, list[int]] = {}
    for t in range(len(chunk)):
        into.setdefault(chunk[t] * ranks + dst[t], []).append(t)
    following: list[list[int]] = [[] for _ in chunk]
    missing = [0] * len(chunk)
    for t in range(len(chunk)):
        for before in into.get(chunk[t] * ranks + src[t], ()):
            if round[before] < round[t]:
                following[before].append(t)
                missing[t] += 1
    return following, missing


def _ways_to_go(round: np.ndarray, following: list[list[int]]) -> list[int]:
    """Hops from each transfer to the last that waits for it."""
    ahead = [0] * len(following)
    for t in np.argsort(-round, kind="stable").tolist():
        ahead[t] = 1 + max((ahead[f] for f in following[t]), default=0)
    return ahead
