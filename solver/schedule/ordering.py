"""Ordering for the timeline model: who goes first on every link, found by playing the schedule.

The timeline model takes transfers in the order of their rounds and never lets one overtake another, so a bad order
blocks links that others need. Here every chunk is cut into pieces of its own, the pieces are played greedily (whoever
can start earliest, and among those who wait for a link the most urgent), and the order of their starts becomes the
order of rounds. Two measures of urgency are tried: the longest way still to go, and the round in the pipeline. What
only gathers is played backwards, as what spreads, since waiting for all children would leave links idle.
Source: list scheduling, Graham, 1966.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from solver.bound import Problem
from solver.schedule.draft import Draft, Task
from synth.collective import Collective
from synth.plan import Chunks, Plan, Transfers, expand, group_elements
from synth.plan.sizes import chunk_bytes

MOST_PIECES = 64
MAX_TRANSFERS = 24_000
"""More pieces would make the document too large and take too long to play."""
MAX_EVENTS = 400_000
"""Pipelines of more segment-transfers are not tried as they are."""
GAIN = 1e-3
"""More pieces or segments must gain so much to be worth it."""


def ordered(task: Task, draft: Draft) -> Iterator[Draft]:
    """The same routes with more segments, and cut into pieces that are played and ordered."""
    yield from _finer(task, draft)
    problem = task.problem
    plan, turn = _with_turns(draft.plan(problem))
    most = MAX_TRANSFERS // max(len(plan.transfers), 1)
    if not most:
        return
    pieces = 2 ** min(draft.segments, most, MOST_PIECES).bit_length() // 2
    best, step, tried = float("inf"), 2.0, set[int]()
    while 1 <= pieces <= min(most, MOST_PIECES) and not task.over:
        tried.add(pieces)
        found, seconds = play(problem, plan, turn, pieces, by_round=True)
        if seconds < best * (1 - GAIN):
            best, chosen = seconds, pieces
            yield found
        elif len(tried) == 2:  # more are no better, so perhaps fewer are
            pieces, step = chosen, 0.5
        else:
            break
        pieces = int(pieces * step)
    if tried and not task.over:
        yield play(problem, plan, turn, chosen, by_round=False)[0]


def _finer(task: Task, draft: Draft) -> Iterator[Draft]:
    """More and more segments, as long as it helps."""
    best = draft.seconds(task)
    while not task.over and 2 * draft.segments * len(draft.transfers) <= MAX_EVENTS:
        draft = draft.with_segments(2 * draft.segments)
        seconds = draft.seconds(task)
        if seconds > best * (1 - GAIN):
            return
        best = seconds
        yield draft


def _with_turns(plan: Plan) -> tuple[Plan, np.ndarray]:
    """(the expanded plan, [transfers] whose turn it is among equals).

    Images of a transfer under a symmetry have the same turn: they use different links of the same kinds, so that all
    ranks work in step and nobody waits. Without one, neighbours at the same distance do.
    """
    whole, ranks = expand(plan), len(plan.ranks)
    chunk, src, dst = whole.transfers.chunk, whole.transfers.src, whole.transfers.dst
    if plan.symmetry is None:
        return whole, (dst - src) % ranks
    back = np.argsort(group_elements(plan.symmetry, ranks), axis=1)
    element, chunk = chunk // len(plan.chunks), chunk % len(plan.chunks)
    return whole, (chunk * ranks + back[element, src]) * ranks + back[element, dst]


def play(problem: Problem, plan: Plan, turn: np.ndarray, pieces: int, *, by_round: bool) -> tuple[Draft, float]:
    """Play a plan cut into pieces.

    Args:
        problem: where it runs.
        plan: without symmetry.
        turn: [transfers] the smallest goes first among equally urgent ones.
        pieces: of each chunk.
        by_round: whether the round in the pipeline says what is urgent, or the longest way to go.

    Returns:
        (the plan in the order of the starts, seconds it takes).
    """
    chunks, transfers = plan.chunks, plan.transfers
    count, ranks = len(chunks), len(plan.ranks)
    size = chunk_bytes(plan, problem.demand)[transfers.chunk] / pieces
    piece = np.repeat(np.arange(pieces), len(transfers))
    tiled = {name: np.tile(getattr(transfers, name), pieces) for name in transfers.__slots__}
    tiled["chunk"] = tiled["chunk"] + piece * count
    backwards = plan.collective in (Collective.REDUCE_SCATTER, Collective.REDUCE)
    flow = dict(tiled)
    if backwards:
        flow |= {"src": tiled["dst"], "dst": tiled["src"], "round": tiled["round"].max(initial=0) - tiled["round"]}
    player = _Player(problem, tiled["src"] * ranks + tiled["dst"], np.tile(size, pieces), flow, ranks)
    urgency = flow["round"] + piece if by_round else -player.ways_to_go
    starts, ends = player.run(urgency, np.tile(turn, pieces))
    seconds = float(ends.max(initial=0.0)) * 1e-9
    _, round = np.unique(-ends if backwards else starts, return_inverse=True)
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
    """Plays transfers against the links; times are in nanoseconds, as in the timeline model.

    Args:
        problem: routes and rates.
        pair: [transfers] row of each route.
        size: [transfers] bytes.
        flow: columns of the transfers in the direction in which they wait for each other.
        ranks: how many there are.
    """

    def __init__(
        self, problem: Problem, pair: np.ndarray, size: np.ndarray, flow: dict[str, np.ndarray], ranks: int
    ) -> None:
        routes = problem.routes
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
        self._next, self._missing = _dependencies(flow, ranks)
        self.ways_to_go = np.array(_ways_to_go(flow["round"], self._next), dtype=np.int64)

    def run(self, urgency: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """([transfers] start, [transfers] arrival of each); the smallest urgency, then turn, goes first."""
        starts, ends = np.zeros(self._count), np.zeros(self._count)
        waiting: list[list[tuple[tuple[int, int], int]]] = [[] for _ in self._free]
        missing = list(self._missing)
        urgent = list(zip(urgency.tolist(), turn.tolist(), strict=True))
        ready = [(0.0, urgent[t], t) for t in range(self._count) if not missing[t]]
        heapq.heapify(ready)
        freed: list[tuple[float, int]] = []

        def try_start(t: int, now: float) -> bool:
            latest = max(self._links[t], key=self._free.__getitem__)
            if self._free[latest] > now:
                heapq.heappush(waiting[latest], (urgent[t], t))
                return False
            starts[t] = now
            for link, busy in zip(self._links[t], self._busy[t], strict=True):
                self._free[link] = now + busy
                heapq.heappush(freed, (now + busy, link))
            arrival = now + max(self._busy[t]) + self._latency[t]
            ends[t] = arrival
            for following in self._next[t]:
                missing[following] -= 1
                if not missing[following]:
                    heapq.heappush(ready, (arrival, urgent[following], following))
            return True

        while ready or freed:
            if ready and (not freed or ready[0][0] < freed[0][0]):
                now, _, t = heapq.heappop(ready)
                try_start(t, now)
                continue
            now, link = heapq.heappop(freed)
            while ready and ready[0][0] <= now:  # those that just got their data compete with those that wait
                _, key, t = heapq.heappop(ready)
                blocked = max(self._links[t], key=self._free.__getitem__)
                heapq.heappush(waiting[blocked], (key, t))
                heapq.heappush(freed, (max(now, self._free[blocked]), blocked))
            while waiting[link] and self._free[link] <= now:
                try_start(heapq.heappop(waiting[link])[1], now)
        return starts, ends


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
