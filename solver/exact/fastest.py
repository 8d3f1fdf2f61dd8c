"""The fastest schedule by the official cost model, over all numbers of rounds that may help.

A schedule of R rounds takes at least R times the cheapest round and the time that the links need in all, so the search
ends when one more round alone costs more than the best schedule so far saves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from solver.backend import Stopped
from solver.exact.search import SLACK, Exact, Objective, Search, Tell
from synth.errors import LimitError


def least_time(search: Search, *, launch_ns: float = 0.0, bandwidth_seconds: float = 0.0) -> Exact:
    """The fastest schedule without segments.

    Args:
        search: what moves, in how many rounds and chunks.
        launch_ns: cost of starting one round.
        bandwidth_seconds: what the links alone are known to need.

    Raises:
        DemandError: the number of ranks is not served, or so few rounds cannot be enough.
        LimitError: so many chunks are too many.
    """
    routes, clock = search.problem.routes, search.clock
    cheapest_round = (float(routes.latency_ns[routes.exists].min()) + launch_ns) * 1e-9

    def with_more(than: int) -> float:
        """Seconds that a schedule of more rounds needs at least."""
        return (than + 1) * cheapest_round + bandwidth_seconds

    rounds = search.first()
    most = routes.ranks - 1 if search.rounds is None else search.rounds
    best: Exact | None = None
    bound = 0.0

    def tell(objective: Objective, rounds: int, incumbent: float, proven: float) -> None:
        known = float("inf") if best is None else best.value
        search.tell(objective, rounds, min(incumbent, known), max(bound, min(proven, with_more(rounds))))

    while True:
        try:
            found = _in(search, rounds, launch_ns, bandwidth_seconds, tell)
        except (Stopped, LimitError):
            if best is None and not clock.over():
                raise
            break
        bound = max(bound, found.bound if rounds == search.rounds else min(found.bound, with_more(rounds)))
        if best is None or found.value < best.value:
            best = found
        if rounds >= most or with_more(rounds) >= best.value * (1 - SLACK) or clock.over():
            break
        rounds += 1
    value = float("inf") if best is None else best.value
    draft = None if best is None else best.draft
    answer = search.exact(Objective.TIME, rounds, draft=draft, value=value, bound=bound)
    return replace(answer, any_rounds=search.rounds is None)


def _in(search: Search, rounds: int, launch_ns: float, bandwidth_seconds: float, tell: Tell) -> Exact:
    """The fastest schedule of at most so many rounds; the program counts nanoseconds."""
    model, routes = search.model(rounds), search.problem.routes
    program = model.program
    latency_ns = (routes.latency_ns.T if model.backwards else routes.latency_ns) + launch_ns
    levels = np.unique([latency_ns[a, b] for a, b in model.hops])
    steps = np.diff(levels, prepend=0.0)
    cost: list[Any] = []
    busiest: list[Any] = []
    before: list[Any] = []
    for r in range(rounds):
        reached = [program.whole(f"z{r}_{level}") for level in range(len(levels))]  # some hop is at least so slow
        for slower, faster in zip(reached[1:], reached, strict=False):
            program.require(slower <= faster)
        if r < model.fewest:
            program.require(reached[0] >= 1)
        elif before:
            program.require(reached[0] <= before[0])  # empty rounds come last
        before = reached
        cost += [float(step) * used for step, used in zip(steps, reached, strict=True)]
        for (_, a, b, round), sent in model.sent.items():
            if round == r:
                program.require(sent <= reached[int(np.searchsorted(levels, latency_ns[a, b]))])
        busy = program.real(f"busy{r}")
        busiest.append(busy)
        for terms in model.loads(r, model.bytes * 1e9).values():
            program.require(program.total(terms) <= busy)
    program.require(program.total(busiest) >= bandwidth_seconds * 1e9 * (1 - 1e-7))
    wanted = program.total([*cost, *busiest])
    return search.solve(model, Objective.TIME, wanted, unit=1e-9, floor=0.0, tell=tell)
