"""Plan books: every size has exactly one plan, and it is the right one."""

from __future__ import annotations

import pytest

from solver.book import make_book
from synth.collective import Collective, Demand
from synth.errors import DemandError
from synth.simulator import simulate
from synth.testing import assert_plan_implements
from synth.topology import catalog

MACHINE = catalog.build("hgx-h100x2")


def test_ranges_meet_and_each_plan_wins_inside_its_own() -> None:
    demand = Demand(collective=Collective.ALLGATHER, ranks=16, bytes=1)
    book = make_book(MACHINE, demand, least=1024, most=2**30, launch_ns=9000)
    assert book.complete
    assert book.pages[0].plan.min_bytes == 1024
    assert book.pages[-1].plan.max_bytes == 2**30
    for before, after in zip(book.pages, book.pages[1:], strict=False):
        assert after.plan.min_bytes == before.plan.max_bytes + 1
    assert 2 <= len(book.pages) <= 6
    for size in (1024, 100_000, 10**7, 2**30):
        here = book.page(size).plan
        assert here.min_bytes <= size <= here.max_bytes
        seconds = [simulate(p.plan, MACHINE, demand.sized(size), launch_ns=9000).seconds for p in book.pages]
        mine = simulate(here, MACHINE, demand.sized(size), launch_ns=9000).seconds
        assert mine <= min(seconds) * 1.02
    for page in book.pages:
        assert_plan_implements(page.plan, MACHINE, page.solved.demand)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(DemandError, match="smallest first"):
        make_book(MACHINE, Demand(collective=Collective.ALLGATHER, ranks=16, bytes=1), least=10, most=1)
