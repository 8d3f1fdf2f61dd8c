"""The fewest rounds, and the fewest slots in so many rounds, where links carry few chunks at a time.

A link of k units of rate carries k chunks a slot. These are the questions of SCCL (Cai et al., "Synthesizing optimal
collective algorithms", 2021), whose steps are rounds here and whose rounds are slots.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solver.backend import Stopped
from solver.exact.model import fewest_rounds
from solver.exact.search import Exact, Infeasible, Objective, Search
from synth.errors import SolveError


def least_rounds(search: Search, *, unit_bytes_per_s: float | None = None) -> Exact:
    """The fewest rounds of one slot each.

    Args:
        search: what moves, in how many rounds at most and how many chunks.
        unit_bytes_per_s: a link of k times this rate carries k chunks a slot; default: the slowest link's rate.

    Raises:
        DemandError: the number of ranks is not served, or so few rounds cannot be enough.
        SolveError: there is no schedule of so many rounds.
        LimitError: so many chunks are too many.
    """
    problem = search.problem
    rounds = search.first()
    most = len(problem.commodities) * search.chunks * problem.routes.ranks if search.rounds is None else search.rounds
    while rounds <= most:
        try:
            found = _in(search, rounds, unit_bytes_per_s, Objective.ROUNDS)
            return replace(found, bound=float(rounds))  # fewer were shown to be impossible
        except Infeasible:
            rounds += 1
    raise SolveError(f"exact: no schedule of {most} rounds exists in which a link of one unit carries one chunk each")


def least_slots(search: Search, *, unit_bytes_per_s: float | None = None) -> Exact:
    """The fewest slots in so many rounds; by default as few rounds as data needs to arrive.

    Raises:
        DemandError, LimitError: as :func:`least_rounds`.
    """
    fewest = search.first()
    return _in(search, search.rounds or fewest, unit_bytes_per_s, Objective.SLOTS)


def _in(search: Search, rounds: int, unit_bytes_per_s: float | None, objective: Objective) -> Exact:
    floor = float(fewest_rounds(search.problem))
    try:
        model = search.model(rounds)
    except Stopped:
        return search.exact(objective, rounds, draft=None, value=float("inf"), bound=floor)
    program, routes = model.program, search.problem.routes
    used = np.unique(routes.links)
    unit = float(routes.topology.bytes_per_s[used].min()) if unit_bytes_per_s is None else unit_bytes_per_s
    most = 1 if objective is Objective.ROUNDS else len(model.root) * routes.ranks
    slots = [program.whole(f"slots{r}", 1 if r < model.fewest else 0, most) for r in range(rounds)]
    for r, slot in enumerate(slots):
        for terms in model.loads(r, np.full(len(model.root), unit * model.images)).values():
            program.require(program.total(terms) <= slot)
    found = search.solve(model, objective, program.total(slots), unit=1.0, floor=floor, tell=search.tell)
    value = float(np.round(found.value))  # slots are whole; HiGHS gives them within its tolerance
    return replace(found, value=value, bound=min(float(np.ceil(found.bound - 1e-6)), value))
