"""Slices: those of a symmetric plan are those of the expanded plan, without expanding it."""

from __future__ import annotations

import numpy as np
import pytest

from solver import portfolio
from synth import plan as plans
from synth.collective import Collective, Demand
from synth.errors import PlanError
from synth.plan.slices import Slicer
from synth.topology import catalog


def symmetric_plan(machine: str, collective: Collective, monkeypatch: pytest.MonkeyPatch) -> plans.Plan:
    monkeypatch.setattr(portfolio, "EXPANDED", 1)
    topology = catalog.build(machine)
    demand = Demand(collective=collective, ranks=len(topology.gpus), bytes=10**9)
    plan = portfolio.solve(topology, demand, strategies=("routed",)).plan
    assert plan.symmetry is not None
    return plan


@pytest.mark.parametrize("machine", ["dgx2x2", "torus3x3x3"])
@pytest.mark.parametrize("collective", [Collective.ALLTOALL, Collective.ALLGATHER, Collective.ALLREDUCE])
def test_representatives_give_the_slices_of_the_whole(
    machine: str, collective: Collective, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = symmetric_plan(machine, collective, monkeypatch)
    whole = plans.expand(small)
    few, all_of_them = Slicer(small), Slicer(whole)
    for rank in range(len(small.ranks)):
        document, expected = few.cut(rank), all_of_them.cut(rank)
        assert document["plan"] == small.digest
        for name in ("plan", "digest"):  # the digest of the whole document differs, and with it the slice's own
            document.pop(name), expected.pop(name)
        assert document == expected


def test_a_slice_is_what_the_rank_does_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    small = symmetric_plan("torus3x3x3", Collective.ALLTOALL, monkeypatch)
    whole = plans.expand(small).transfers
    for rank in (0, 13, 26):
        part, _, _ = plans.load_slice(plans.slice_plan(small, rank))
        mine = (whole.src == rank) | (whole.dst == rank)
        assert mine.sum() == len(part.transfers)
        for name in ("src", "dst", "round"):
            assert np.array_equal(getattr(part.transfers, name), getattr(whole, name)[mine])


def test_a_group_that_fixes_a_rank_is_refused() -> None:
    swap = (0, 1, 3, 2)
    with pytest.raises(PlanError, match="fixes a rank"):
        plans.group_elements(plans.Symmetry((swap,), 2), 4)
    turn = (1, 2, 3, 0)
    with pytest.raises(PlanError, match="fixes a rank"):
        plans.group_elements(plans.Symmetry((turn, swap), 24), 4)
    with pytest.raises(PlanError, match="order 2, but the generators make 4"):
        plans.group_elements(plans.Symmetry((turn,), 2), 4)
