"""Exact schedules of few rounds, by integer programming over (chunk, hop, round).

Two questions, for data that moves (allgather, broadcast, alltoall, sendrecv) among up to about eight ranks:

* :func:`least_time`: which schedule of at most so many rounds is fastest by the official cost model;
* :func:`least_steps`: how few link slots an allgather of so many chunks needs in so many rounds when a link carries as
  many chunks per slot as it is wide; the question that SCCL asks (Cai et al., "Synthesizing optimal collective
  algorithms", 2021), with its answers for the DGX-1.

Reductions are these schedules run backwards on the reversed machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.backend import IntegerProgram
from solver.bound import Problem
from solver.schedule.draft import Draft
from synth.collective import EVERY, Collective, Demand
from synth.errors import DemandError, SolveError
from synth.plan import Chunks, Plan, Transfers
from synth.topology import Routes

MAX_RANKS = 8
SERVED = (Collective.ALLGATHER, Collective.BROADCAST, Collective.ALLTOALL, Collective.SENDRECV)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """The best schedule found, and how good it is proven to be.

    Attributes:
        plan: without a certificate.
        value: of the objective: nanoseconds, or slots.
        bound: no schedule with so many rounds and chunks has less.
        proven: whether the two meet; otherwise time ran out.
    """

    plan: Plan
    value: float
    bound: float
    proven: bool


def least_time(
    routes: Routes,
    demand: Demand,
    *,
    rounds: int,
    chunks: int = 1,
    launch_ns: float = 0.0,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Exact:
    """The fastest schedule of at most so many rounds, every block cut into so many equal chunks.

    Raises:
        DemandError: the collective or the number of ranks is not served.
        SolveError: no schedule of so many rounds exists, or none was found in time.
    """
    model = _Model(routes, demand, rounds, chunks, seed)
    program = model.program
    size = demand.blocks.size / chunks
    times = []
    for r in range(rounds):
        busiest, latency = program.real(f"busy{r}"), program.real(f"latency{r}")
        times += [busiest, latency]
        for link, users in model.users(r):
            rate = float(routes.topology.bytes_per_s[link])
            program.require(program.total(float(size[c // chunks]) / rate * 1e9 * x for c, x in users) <= busiest)
        for a, b in model.hops:
            delay = float(routes.latency_ns[a, b]) + launch_ns
            for c in range(model.count):
                program.require(delay * model.sent[c, a, b, r] <= latency)
    return model.solve(program.total(times), time_limit)


def least_steps(
    routes: Routes, demand: Demand, *, rounds: int, chunks: int, unit_bytes_per_s: float, time_limit: float = 60.0
) -> Exact:
    """The fewest slots in so many rounds, where a link of k units of rate carries k chunks a slot.

    Raises:
        DemandError, SolveError: as :func:`least_time`.
    """
    model = _Model(routes, demand, rounds, chunks, seed=0)
    program = model.program
    slots = [program.whole(f"slots{r}", 0, chunks * routes.ranks) for r in range(rounds)]
    for r in range(rounds):
        for link, users in model.users(r):
            width = float(routes.topology.bytes_per_s[link]) / unit_bytes_per_s
            program.require(program.total(x for _, x in users) <= width * slots[r])
    return model.solve(program.total(slots), time_limit)


class _Model:
    """Who sends which chunk over which hop in which round, so that everybody ends with what is promised."""

    def __init__(self, routes: Routes, demand: Demand, rounds: int, chunks: int, seed: int) -> None:
        if demand.collective not in SERVED or routes.ranks > MAX_RANKS or routes.ranks != demand.ranks:
            served = ", ".join(member.value for member in SERVED)
            raise DemandError(
                f"exact: serves {served} among up to {MAX_RANKS} ranks, not {demand.collective.value} among "
                f"{routes.ranks}",
                subject="exact",
            )
        self.routes, self.demand, self.rounds, self.chunks = routes, demand, rounds, chunks
        self.program = IntegerProgram("exact", seed=seed)
        self.hops = [(int(a), int(b)) for a, b in np.argwhere(routes.exists)]
        blocks = demand.blocks
        self.origin = np.repeat(blocks.origin, chunks)
        self.target = np.repeat(blocks.target, chunks)
        self.count = len(self.origin)
        self.sent: dict[tuple[int, int, int, int], Any] = {
            (c, a, b, r): self.program.whole(f"x{c}_{a}_{b}_{r}")
            for c in range(self.count)
            for a, b in self.hops
            for r in range(rounds)
        }
        for c in range(self.count):
            self._promise(c)

    def _into(self, c: int, rank: int, before: int) -> list[Any]:
        """Arrivals of a chunk at a rank in rounds before the given one."""
        return [self.sent[c, a, b, r] for a, b in self.hops if b == rank for r in range(before)]

    def _promise(self, c: int) -> None:
        program, origin, target = self.program, int(self.origin[c]), int(self.target[c])
        for rank in range(self.routes.ranks):
            arrivals = program.total(self._into(c, rank, self.rounds))
            if rank == origin:
                program.require(arrivals <= 0)
                continue
            wanted = target in (EVERY, rank)
            if wanted:
                program.require(arrivals >= 1)
            program.require(arrivals <= 1)
            for a, b in self.hops:
                if a == rank:
                    for r in range(self.rounds):
                        program.require(self.sent[c, a, b, r] <= program.total(self._into(c, rank, r)))

    def users(self, r: int) -> Iterable[tuple[int, list[tuple[int, Any]]]]:
        """(link, [(chunk, whether it crosses the link)]) of one round."""
        crossing: dict[int, list[tuple[int, Any]]] = {}
        for a, b in self.hops:
            for link in self.routes.route(a, b).tolist():
                crossing.setdefault(link, []).extend((c, self.sent[c, a, b, r]) for c in range(self.count))
        return crossing.items()

    def solve(self, objective: Any, time_limit: float) -> Exact:
        """Minimise and read the plan."""
        found = self.program.minimise(objective, time_limit=time_limit)
        if not np.isfinite(found.objective):
            raise SolveError(
                f"exact: found no schedule of {self.rounds} rounds in {time_limit:g} s; allow more of both"
            )
        moves = sorted((r, a, b, c) for (c, a, b, r), x in self.sent.items() if (x.value() or 0.0) > 0.5)
        round, src, dst, chunk = np.array(moves, dtype=np.int64).reshape(-1, 4).T
        draft = Draft(
            chunks=Chunks(self.origin, self.target, np.ones(self.count, dtype=np.int64)),
            transfers=Transfers(chunk, src, dst, round, np.zeros(len(chunk), dtype=np.int64)).sorted(),
            denominator=self.chunks,
            whole=True,
        )
        plan = draft.plan(Problem.of(self.routes, self.demand))
        return Exact(plan=plan, value=found.objective, bound=found.bound, proven=found.proven)
