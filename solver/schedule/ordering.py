"""Ordering for the timeline model: who goes first on every link, found by playing the schedule.

The timeline model takes transfers in the order of their rounds and never lets one overtake another, so a bad order
blocks links that others need. Here every chunk is cut into pieces of its own, the pieces are played against the links
(:mod:`solver.schedule.playing`), and the order of their starts becomes the order of rounds. They are played greedily,
and one after another into the first gap that is long enough, by their rounds in the pipeline; then greedily by the
longest way still to go. Each is then justified: placed backwards, the last to arrive first, and forwards again, the
first to start there first, as long as that helps. What only gathers is played backwards, as what spreads, since waiting
for all children would leave links idle.
Sources: list scheduling, Graham, 1966; justification, Valls, Ballestin, Quintanilla, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from solver.backend import Stopped
from solver.bound import Problem
from solver.schedule.draft import Draft, Task
from solver.schedule.playing import Players
from synth.collective import Collective
from synth.plan import Chunks, Plan, Transfers, expand, group_elements
from synth.plan.sizes import chunk_bytes

MOST_PIECES = 64
FEW = 24_000
"""More pieces make the document large and are cut only where fewer are not good enough."""
MAX_TRANSFERS = 80_000
"""More would take too long to play."""
MAX_EVENTS = 400_000
"""Pipelines of more segment-transfers are not played as they are: a second."""
GAIN = 1e-3
"""More pieces or segments must gain so much to be worth it."""
ENOUGH = 5e-3
"""An order this near to what the links need anyway is not improved."""
GOOD = 4.5e-2
"""Trees in an order this near are not cut into more pieces than a small document holds."""
ENLARGED = 2
"""So many pipelines, the best ones by rounds, are cut into more pieces where none is good."""
LIKE = 2e-2
"""Kinds of order this near to each other are alike, and the cheapest is taken."""
JUSTIFIED = 3
"""An order is justified at most so often."""


def in_good_order(task: Task, pipelines: Iterable[Draft], near: float) -> Iterator[Draft]:
    """For the timeline model: the pipelines, the better ones also in a better order, then with more segments.

    Args:
        task: what to schedule.
        pipelines: drafts for the rounds model.
        near: seconds at which it ends.
    """
    best = reached = float("inf")
    kept: list[tuple[float, Draft, Kinds]] = []
    for draft in pipelines:
        seconds = draft.pipeline(task.problem, 0.0).seconds(draft.segments)
        draft = _playable(task.problem, draft)
        yield draft
        reached = min(reached, draft.seconds(task))
        if seconds <= best * (1 + GAIN):
            kinds: Kinds = [Pieces.in_gaps, Pieces.by_round, Pieces.by_way]
            kept.append((seconds, draft, kinds))
            for found in ordered(task, draft, kinds):
                reached = min(reached, found.seconds(task))
                yield found
        best = min(best, seconds)
        if reached <= near:
            return
    kept.sort(key=lambda each: each[0])
    for _, draft, kinds in kept[:ENLARGED]:
        if reached > _good(task):
            for found in ordered(task, draft, kinds, large=True):
                reached = min(reached, found.seconds(task))
                yield found
    for _, draft, _ in kept:
        for found in finer(task, draft, reached):
            reached = min(reached, found.seconds(task))
            yield found


def _good(task: Task) -> float:
    paths = task.problem.demand.collective in (Collective.ALLTOALL, Collective.SENDRECV)
    return task.fractional.bound * (1 + (ENOUGH if paths else GOOD))


def _playable(problem: Problem, draft: Draft) -> Draft:
    """The draft with as many segments as can be played in short time, at most its own."""
    most = MAX_EVENTS // max(draft.with_segments(1).events(problem), 1)
    return draft if draft.segments <= most else draft.with_segments(max(most, 1))


def ordered(task: Task, draft: Draft, kinds: Kinds, *, large: bool = False) -> Iterator[Draft]:
    """The same routes cut into pieces that are played and ordered, as long as more pieces help.

    Args:
        task: what to schedule.
        draft: a pipeline.
        kinds: of order to try, the cheapest first; after the first number of pieces only the best one, or like it, is
            left in it.
        large: go on from ``FEW`` transfers to ``MAX_TRANSFERS``.
    """
    near = task.fractional.bound * (1 + ENOUGH)
    plan, turn = _with_turns(draft.plan(task.problem))
    count = max(len(plan.transfers), 1)
    few, most = (min(limit // count, MOST_PIECES) for limit in (FEW, MAX_TRANSFERS))
    pieces = 2 ** min(draft.segments, max(few, 1)).bit_length() // 2
    if large:
        pieces *= 2
    elif most:
        most = max(few, 1)
    best: Played | None = None
    step, tried = 2.0, 0
    try:
        while 1 <= pieces <= most and not task.over:
            tried += 1
            cut = Pieces(task.problem, plan, turn, pieces, stop=lambda: task.over)
            every = [_justified(kind(cut), near) for kind in kinds]
            found = min(every, key=_seconds)
            like = found.seconds * (1 + LIKE)
            kinds[:] = [next(kind for kind, played in zip(kinds, every, strict=True) if played.seconds <= like)]
            if best is None or found.seconds < best.seconds * (1 - GAIN):
                best = found
                yield found.draft()
            elif tried == 2 and not large:  # more are no better, so perhaps fewer are
                pieces, step = best.pieces.count, 0.5
            else:
                return
            pieces = int(pieces * step)
    except Stopped:
        return


def _seconds(played: Played) -> float:
    return played.seconds


def _justified(played: Played, near: float) -> Played:
    for _ in range(JUSTIFIED):
        if played.seconds <= near:
            return played
        better = played.justified()
        if better.seconds > played.seconds * (1 - GAIN):
            return min(better, played, key=_seconds)
        played = better
    return played


def finer(task: Task, draft: Draft, best: float) -> Iterator[Draft]:
    """More and more segments, as long as it helps and could beat the best.

    What filling and draining costs halves with every doubling, so twice a doubling's gain is all there is to win.
    """
    before = draft.seconds(task)
    if draft.segments > 1:
        coarser = draft.with_segments(draft.segments // 2).seconds(task)
        if 2 * before - coarser > best:
            return
    while not task.over and (more := draft.with_segments(2 * draft.segments)).events(task.problem) <= MAX_EVENTS:
        seconds = more.seconds(task)
        if seconds > before * (1 - GAIN):
            return
        yield more
        best = min(best, seconds)
        if 2 * seconds - before > best * (1 - GAIN):
            return
        draft, before = more, seconds


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


class Pieces:
    """A plan whose chunks are cut into pieces, to be played.

    Args:
        problem: where it runs.
        plan: without symmetry.
        turn: [transfers] the smallest goes first among equally urgent ones.
        count: pieces of each chunk.
        stop: asked now and then whether to give up.
    """

    def __init__(
        self, problem: Problem, plan: Plan, turn: np.ndarray, count: int, *, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.count, self.plan, self.stop = count, plan, stop
        transfers, self._ranks = plan.transfers, len(plan.ranks)
        size = chunk_bytes(plan, problem.demand)[transfers.chunk] / count
        self.bytes = np.tile(size, count)
        self._piece = np.repeat(np.arange(count), len(transfers))
        self.columns = {name: np.tile(getattr(transfers, name), count) for name in transfers.__slots__}
        self.columns["chunk"] = self.columns["chunk"] + self._piece * len(plan.chunks)
        self._turn = np.tile(turn, count)
        self.backwards = plan.collective in (Collective.REDUCE_SCATTER, Collective.REDUCE)
        flow, tiled = dict(self.columns), self.columns
        if self.backwards:
            last = tiled["round"].max(initial=0)
            flow |= {"src": tiled["dst"], "dst": tiled["src"], "round": last - tiled["round"]}
        self._round = flow["round"]
        self._following, self._before = _dependencies(flow, self._ranks)
        self._players = Players(problem, tiled["src"] * self._ranks + tiled["dst"], self.bytes)

    def by_round(self) -> Played:
        """Played greedily; the round in the pipeline says what is urgent."""
        return self._greedy(self._round + self._piece)

    def by_way(self) -> Played:
        """Played greedily; the longest way to go says what is urgent."""
        return self._greedy(-np.array(_ways_to_go(self._round, self._following), dtype=np.int64))

    def in_gaps(self) -> Played:
        """Placed by the round in the pipeline, each where it fits first."""
        return self.placed(np.lexsort((self._turn, self._round + self._piece)))

    def placed(self, order: np.ndarray) -> Played:
        """Placed one after another, each where it fits first."""
        return Played(self, *self._players.place(self._following, order, self.stop))

    def reversed(self, order: np.ndarray) -> np.ndarray:
        """[transfers] how long before the end each starts when all are placed against their direction."""
        return self._players.place(self._before, order, self.stop)[1]

    def _greedy(self, urgency: np.ndarray) -> Played:
        return Played(self, *self._players.play(self._following, self._before, urgency, self._turn, self.stop))

    def draft(self, starts: np.ndarray, ends: np.ndarray) -> Draft:
        """The plan in the order of the starts."""
        plan = self.plan
        _, round = np.unique(-ends if self.backwards else starts, return_inverse=True)
        columns = self.columns | {"round": _after_sources(self.columns, round, self._ranks)}
        return Draft(
            chunks=Chunks(*(np.tile(getattr(plan.chunks, name), self.count) for name in plan.chunks.__slots__)),
            transfers=Transfers(**columns).sorted(),
            denominator=plan.denominator * self.count,
            whole=True,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """Pieces that were played.

    Attributes:
        pieces: what was played.
        starts: [transfers] nanoseconds.
        ends: [transfers] arrival of each.
    """

    pieces: Pieces
    starts: np.ndarray
    ends: np.ndarray

    @property
    def seconds(self) -> float:
        """Until the last has arrived."""
        return float(self.ends.max(initial=0.0)) * 1e-9

    def draft(self) -> Draft:
        """The plan in the order of the starts."""
        return self.pieces.draft(self.starts, self.ends)

    def justified(self) -> Played:
        """Placed backwards, the last to arrive first, and forwards in the order of the starts found so."""
        backwards = self.pieces.reversed(np.argsort(-self.ends, kind="stable"))
        return self.pieces.placed(np.argsort(-backwards, kind="stable"))


Kinds = list[Callable[[Pieces], Played]]


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


def _dependencies(columns: dict[str, np.ndarray], ranks: int) -> tuple[list[list[int]], list[list[int]]]:
    """(transfers that wait for each, those each waits for): data must have come in before it goes on."""
    chunk, src, dst, round = (columns[name].tolist() for name in ("chunk", "src", "dst", "round"))
    into: dict[int, list[int]] = {}
    for t in range(len(chunk)):
        into.setdefault(chunk[t] * ranks + dst[t], []).append(t)
    following: list[list[int]] = [[] for _ in chunk]
    before: list[list[int]] = [[] for _ in chunk]
    for t in range(len(chunk)):
        for source in into.get(chunk[t] * ranks + src[t], ()):
            if round[source] < round[t]:
                following[source].append(t)
                before[t].append(source)
    return following, before


def _ways_to_go(round: np.ndarray, following: list[list[int]]) -> list[int]:
    """Hops from each transfer to the last that waits for it."""
    ahead = [0] * len(following)
    for t in np.argsort(-round, kind="stable").tolist():
        ahead[t] = 1 + max((ahead[f] for f in following[t]), default=0)
    return ahead
