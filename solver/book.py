"""The plan book: a few plans that together serve every size of a range, each where the cost model prefers it.

Plans are made for sizes a factor apart, every plan is priced at every size, and where the best one changes the exact
size is searched for. Plans that are hardly better than another anywhere are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.backend import Cancel
from solver.portfolio import Progress, Solved, solve
from synth.collective import Demand
from synth.errors import DemandError
from synth.plan import Plan
from synth.simulator import Cost, simulate
from synth.topology import Routes, Topology

FACTOR = 8
"""Plans are made for sizes this far apart."""
GRID = 2
"""They are compared at sizes this far apart."""
WORTH = 0.01
"""A plan that saves less than this anywhere is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One plan of a book: its plan's ``min_bytes`` and ``max_bytes`` say where it is the one to take."""

    solved: Solved
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """Plans in order of size; their ranges meet without gap or overlap.

    Attributes:
        pages: at least one.
        complete: whether every size was solved before time ran out.
    """

    pages: tuple[Page, ...]
    complete: bool

    def page(self, bytes: int) -> Page:
        """The plan to take at a size; outside the range the nearest."""
        for page in self.pages:
            if bytes <= page.plan.max_bytes:
                return page
        return self.pages[-1]


def make_book(
    topology: Topology,
    demand: Demand,
    *,
    least: int,
    most: int,
    ranks: Sequence[str] | None = None,
    time_limit: float = 60.0,
    cost: Cost | str = Cost.ROUNDS,
    launch_ns: float = 0.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
    progress: Callable[[Progress], None] = lambda news: None,
) -> Book:
    """Plan a collective for every size from ``least`` to ``most`` bytes; other arguments as :func:`solve`.

    Raises:
        DemandError: the range is empty, or the demand has a byte matrix, which fixes its size.
    """
    if not 0 < least <= most:
        raise DemandError(f"sizes {least} to {most}: must be a range above 0, smallest first", subject="bytes")
    if demand.matrix is not None:
        raise DemandError("a byte matrix has one size; leave out the range", subject="demand")
    deadline = time.monotonic() + time_limit
    routes = Routes.among(topology, ranks)
    sizes = _steps(least, most, FACTOR)
    solved: list[Solved] = []
    for number, size in enumerate(sizes):
        left = deadline - time.monotonic()
        if solved and (left <= 0 or cancel()):
            break
        found = solve(
            topology,
            demand.sized(size),
            ranks=ranks,
            time_limit=max(left, 0.01) / (len(sizes) - number),
            cost=cost,
            launch_ns=launch_ns,
            seed=seed,
            cancel=cancel,
        )
        progress(Progress(f"{size} bytes: {found.strategy}, {found.gap:.2%} over the bound"))
        solved.append(found)

    def price(plan: Plan, size: int) -> float:
        return simulate(plan, topology, demand.sized(size), cost=cost, launch_ns=launch_ns, routes=routes).seconds

    plans = [found.plan for found in solved]
    grid = _steps(least, most, GRID)
    prices = np.array([[price(plan, size) for size in grid] for plan in plans])
    kept = _worthwhile(prices)
    winners = [kept[int(prices[kept, column].argmin())] for column in range(len(grid))]
    pages, begin = [], least
    for column, winner in enumerate(winners):
        following = winners[column + 1] if column + 1 < len(grid) else None
        if following == winner:
            continue
        end = most
        if following is not None:
            end = _last_size(plans[winner], plans[following], grid[column], grid[column + 1], price)
        plan = replace(plans[winner], min_bytes=begin, max_bytes=end)
        pages.append(Page(solved=solved[winner], plan=plan))
        begin = end + 1
    return Book(pages=tuple(pages), complete=len(solved) == len(sizes))


def _steps(least: int, most: int, factor: int) -> list[int]:
    """Sizes from the least to the most, both included, a factor apart."""
    sizes = []
    size = least
    while size < most:
        sizes.append(size)
        size *= factor
    return [*sizes, most]


def _worthwhile(prices: np.ndarray) -> list[int]:
    """Rows to keep: dropping one at a time while the best of the others is nowhere much worse."""
    kept = list(range(len(prices)))
    while len(kept) > 1:
        without = {}
        for row in kept:
            others = [other for other in kept if other != row]
            without[row] = float((prices[others].min(axis=0) / prices.min(axis=0)).max())
        row = min(kept, key=lambda r: (without[r], r))
        if without[row] > 1 + WORTH:
            break
        kept.remove(row)
    return kept


def _last_size(plan: Plan, other: Plan, low: int, high: int, price: Callable[[Plan, int], float]) -> int:
    """The last size from ``low`` to below ``high`` at which the first plan is no worse, by bisection."""
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        if price(plan, middle) <= price(other, middle):
            low = middle
        else:
            high = middle
    return low
