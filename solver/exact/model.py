"""The integer program behind exact schedules: over (chunk, hop, round), whether the chunk crosses the hop in the round.

What is reduced is modelled as what spreads, backwards: a chunk that spreads from rank t over hop a -> b in round r of R
is a chunk that is gathered to t over hop b -> a in round R - 1 - r. With symmetries the program holds one chunk per
orbit, and every image of it moves at the same time along the image of its route.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from solver.backend import Cancel, IntegerProgram, Stopped
from solver.bound import Problem
from solver.bound.problem import hop_distance
from solver.schedule.draft import Draft
from synth.collective import EVERY, Collective
from synth.errors import DemandError, LimitError
from synth.plan import Chunks, Transfers

PLAIN_RANKS, SYMMETRIC_RANKS = 8, 16
"""So many ranks are served without and with symmetries."""
MOST_VARIABLES = 60_000
"""Larger programs would hardly be solved."""


class Model:
    """Who sends which chunk over which hop in which round, so that everybody ends with what is promised.

    Args:
        problem: whose blocks move.
        rounds: most rounds.
        chunks: equal parts that every block is cut in.
        seed: for HiGHS.
        cancel: asked while the program is made.

    Attributes:
        root, end: [chunks] where each begins and ends; ``EVERY`` for trees.
        bytes: [chunks] size, with those of its images.
        images: how many chunks each stands for.
        hops: (from, to) that exist.
        sent: {(chunk, from, to, round): variable}, without those that would come too late.
        fewest: rounds that no schedule can do without.

    Raises:
        DemandError: the number of ranks is not served.
        LimitError: the program would be too large.
        Stopped: it was cancelled.
    """

    def __init__(
        self, problem: Problem, *, rounds: int, chunks: int, seed: int = 0, cancel: Cancel = lambda: False
    ) -> None:
        check(problem)
        self.problem, self.rounds, self.chunks = problem, rounds, chunks
        self.program = IntegerProgram("exact", seed=seed)
        self.backwards = problem.demand.collective.reduces
        commodities = problem.commodities
        self.root = np.repeat(commodities.root, chunks)
        self.end = np.repeat(np.where(spreads(problem), EVERY, commodities.end), chunks)
        self.bytes = np.repeat(commodities.size / chunks, chunks)
        self.images = 1 if problem.group is None else problem.group.order
        exists = _exists(problem)
        self.hops = [(int(a), int(b)) for a, b in np.argwhere(exists)]
        self.distance = hop_distance(exists)
        self.fewest = fewest_rounds(problem)
        self.sent: dict[tuple[int, int, int, int], Any] = {}
        self._into: dict[tuple[int, int], dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self._out_of: dict[int, dict[tuple[int, int], list[Any]]] = defaultdict(lambda: defaultdict(list))
        count = len(self.root) * len(self.hops) * rounds
        if count > MOST_VARIABLES:
            raise LimitError(
                f"exact: {len(self.root)} chunks over {len(self.hops)} hops in {rounds} rounds are {count} decisions; "
                f"at most {MOST_VARIABLES} are tried, so ask for fewer chunks or rounds",
                subject="chunks",
            )
        for step in (self._add_chunk, self._promise):
            for c in range(len(self.root)):
                if cancel():
                    raise Stopped
                step(c)

    def pair(self, a: int, b: int) -> int:
        """Row of the route that the model's hop stands for."""
        ranks = self.problem.routes.ranks
        return b * ranks + a if self.backwards else a * ranks + b

    def _add_chunk(self, c: int) -> None:
        """Variables of the hops that a chunk can use in each round without coming too late."""
        root, end, distance = int(self.root[c]), int(self.end[c]), self.distance
        for a, b in self.hops:
            if b == root or a == end:
                continue
            last = self.rounds - 1 - (0 if end == EVERY else int(distance[b, end]))
            for r in range(int(distance[root, a]), last + 1):
                variable = self.program.whole(f"x{c}_{a}_{b}_{r}")
                self.sent[c, a, b, r] = variable
                self._into[c, b][r].append(variable)
                self._out_of[c][a, r].append(variable)

    def _arrivals(self, c: int, rank: int, before: int) -> Any:
        """How often a chunk arrives at a rank in rounds before the given one."""
        by_round = self._into[c, rank]
        return self.program.total(x for r in range(before) for x in by_round.get(r, ()))

    def _promise(self, c: int) -> None:
        program, root, end = self.program, int(self.root[c]), int(self.end[c])
        for rank in range(self.problem.routes.ranks):
            if rank != root:
                arrivals = self._arrivals(c, rank, self.rounds)
                program.require(arrivals == 1 if end in (EVERY, rank) else arrivals <= 1)
        for (a, r), leaving in self._out_of[c].items():
            if a != root:
                arrived = self._arrivals(c, a, r)
                for sent in leaving:
                    program.require(sent <= arrived)

    def loads(self, r: int, size: np.ndarray) -> dict[int, list[Any]]:
        """{row of the problem: terms} of what one round sends over each link, as ``size * seconds per byte``.

        Args:
            r: round.
            size: [chunks] factor of each chunk.
        """
        crossing = self.problem.crossing
        terms: dict[int, list[Any]] = defaultdict(list)
        for (c, a, b, round), sent in self.sent.items():
            if round == r:
                begin, end = crossing.indptr[self.pair(a, b) : self.pair(a, b) + 2]
                rows, values = crossing.indices[begin:end], crossing.data[begin:end]
                for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                    terms[row].append(float(size[c] * value) * sent)
        return terms

    def draft(self) -> Draft:
        """The schedule that the last solution describes, empty rounds left out."""
        moves = [move for move, x in self.sent.items() if (x.value() or 0.0) > 0.5]
        chunk, a, b, r = np.array(moves, dtype=np.int64).reshape(-1, 4).T
        if self.backwards:
            a, b, r = b, a, self.rounds - 1 - r
        round = np.unique(r, return_inverse=True)[1].reshape(-1)
        every = np.full(len(self.root), EVERY)
        origin, target = (every, self.root) if self.backwards else (self.root, self.end)
        reduce = np.full(len(chunk), int(self.backwards))
        return Draft(
            chunks=Chunks(origin, target, np.ones(len(self.root), dtype=np.int64)),
            transfers=Transfers(chunk, a, b, round, reduce).sorted(),
            denominator=self.chunks,
        )


def check(problem: Problem) -> None:
    """Refuse what is not served.

    Raises:
        DemandError: there are helpers, or too many ranks.
    """
    ranks, demand = problem.routes.ranks, problem.demand
    if ranks != demand.ranks:
        raise DemandError("exact: cannot use helpers; leave them out", subject="helpers")
    most = PLAIN_RANKS if problem.group is None else SYMMETRIC_RANKS
    if ranks > most:
        alike = "that do not look alike to the machine" if problem.group is None else "even where they look alike"
        raise DemandError(f"exact: {ranks} ranks {alike}; at most {most} are served", subject="exact")


def spreads(problem: Problem) -> bool:
    """Whether every rank takes part in a chunk's route, so that it is a tree."""
    return problem.demand.collective not in (Collective.ALLTOALL, Collective.SENDRECV)


def _exists(problem: Problem) -> np.ndarray:
    """[ranks, ranks] the model's hops: those of the machine, reversed for what is reduced."""
    exists = problem.routes.exists
    return exists.T if problem.demand.collective.reduces else exists


def fewest_rounds(problem: Problem) -> int:
    """Rounds that no schedule can do without: the most hops from a block to a rank that is promised it."""
    commodities = problem.commodities
    away = hop_distance(_exists(problem))[commodities.root]
    return int(away.max() if spreads(problem) else away[np.arange(len(commodities)), commodities.end].max())
