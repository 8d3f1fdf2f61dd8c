"""Warm-up: every edge once, in bounded steps, with progress, and a rank that is missing is named."""

import numpy as np
import pytest

from runtime.attach import attach
from runtime.direct import direct_plan
from runtime.warmup import connect, pairs
from synth import plan as plans
from synth.collective import Collective
from synth.errors import RemoteError


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_CACHE", "SYNTH_TRIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")


def test_every_edge_is_met_once_and_no_rank_meets_two_at_a_time(in_threads):
    edges = {(0, 1), (1, 2), (2, 0), (3, 0), (0, 3), (2, 3)}

    def rank(communicator):
        met, seen, group = [], [], communicator.group

        def watched(sends, receives, buffers, round):
            met.append(([m.peer for m in sends], [m.peer for m in receives]))
            group(sends, receives, buffers, round)

        communicator.group = watched
        seconds = connect(communicator, communicator, edges, lambda *step: seen.append(step[:2]))
        return met, seen, seconds

    for me, (met, seen, seconds) in enumerate(in_threads(4, rank)):
        assert all(len(out) <= 1 and len(back) <= 1 for out, back in met)
        assert sorted(peer for out, _ in met for peer in out) == sorted(b for a, b in edges if a == me)
        assert sorted(peer for _, back in met for peer in back) == sorted(a for a, b in edges if b == me)
        assert seen == [(1, 3), (2, 3), (3, 3)]  # edges are 1, 2 and 3 apart
        assert set(seconds) == {peer for edge in edges if me in edge for peer in edge} - {me}


def test_a_group_warms_up_the_plan_and_what_it_is_tried_against(in_threads, tmp_path, monkeypatch):
    ring = direct_plan(Collective.ALLTOALL, 3)
    plans.save(ring, tmp_path / "plan.json")
    monkeypatch.setenv("SYNTH_PLAN_FILE", str(tmp_path / "plan.json"))

    def rank(communicator):
        ep = attach(communicator=communicator)
        steps = []
        seconds = ep.warm_up("alltoall", "broadcast", root=1, progress=lambda *step: steps.append(step))
        assert ep.all_to_all(np.ones(3))[0].tolist() == [1.0] * 3
        return sorted(seconds), len(steps), seconds == ep.stats().connected

    assert in_threads(3, rank) == [([p for p in range(3) if p != me], 6, True) for me in range(3)]
    assert pairs(3) == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}


def test_a_missing_rank_is_named(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.prepare("alltoall")
        if ep.rank == 2:
            return None
        with pytest.raises(RemoteError, match=r"warm-up, step \d of 2: rank 2 did not answer") as error:
            ep.warm_up()
        assert not ep.is_valid()
        return error.value.rank

    assert in_threads(3, rank, deadline=0.5) == [2, 2, None]
