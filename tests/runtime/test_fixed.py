"""all_to_all with a fixed capacity: what fits arrives, what does not is counted, and no count is exchanged."""

import numpy as np
import pytest

from runtime.attach import attach
from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InvalidArgument


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")
    monkeypatch.setenv("SYNTH_TRIAL", "off")


def counts_of(rank, size):
    return np.array([(3 * rank + 2 * peer) % 7 for peer in range(size)])


@pytest.mark.parametrize(("dtype", "row"), [(np.float32, (5,)), (np.int8, (3,)), (np.float64, ()), (np.int16, (2, 3))])
@pytest.mark.parametrize("planned", [False, True])
def test_rows_arrive_up_to_the_capacity(in_threads, tmp_path, monkeypatch, dtype, row, planned):
    size, capacity = 4, 4
    if planned:
        plan = direct_plan(Collective.ALLTOALL, size).with_(solver={"seed": 3})
        plans.save(plan, tmp_path / "plan.json")
        monkeypatch.setenv("SYNTH_PLAN_FILE", str(tmp_path / "plan.json"))

    def rank(communicator):
        ep = attach(communicator=communicator)
        for turn in range(2):  # the second time the buffers are used again
            counts = counts_of(ep.rank + turn, size)
            numbers = np.arange(counts.sum() * int(np.prod(row))) + 50 * ep.rank
            send = numbers.astype(dtype).reshape(-1, *row)
            received = ep.all_to_all_fixed(send, counts.astype(np.int32) if turn else counts, capacity)
        return counts, send, received, ep.dropped_rows(), ep.stats().operations

    results = in_threads(size, rank)
    for me, (_, _, received, _, operations) in enumerate(results):
        assert received.rows.shape == (size, capacity, *row)
        assert received.rows.dtype == dtype
        for origin, (counts, send, _, _, _) in enumerate(results):
            kept, begin = min(counts[me], capacity), counts[:me].sum()
            assert received.counts[origin] == kept
            assert received.dropped[origin] == counts[me] - kept
            np.testing.assert_array_equal(received.rows[origin, :kept], send[begin : begin + kept])
        ((operation, schedule),) = operations
        assert operation == "alltoall"
        assert schedule.startswith("plan" if planned else "direct")
    for me, result in enumerate(results):
        over = sum((counts_of(me + turn, size) - capacity).clip(0).sum() for turn in range(2))
        assert result[3] == over


def test_rows_may_come_in_slots(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        slots = np.arange(3 * 5 * 2, dtype=np.float32).reshape(3, 5, 2) + 100 * ep.rank
        handle = ep.all_to_all_fixed(slots, np.array([5, 0, 9]), wait=False)
        return handle.wait()

    for me, received in enumerate(in_threads(3, rank)):
        kept = (5, 0, 5)[me]
        assert received.counts.tolist() == [kept] * 3
        assert received.dropped.tolist() == [(0, 0, 4)[me]] * 3
        for origin in range(3):
            right = np.arange(30, dtype=np.float32).reshape(3, 5, 2)[me] + 100 * origin
            np.testing.assert_array_equal(received.rows[origin, :kept], right[:kept])


def test_rows_beyond_the_end_are_dropped_not_read(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        return ep.all_to_all_fixed(np.ones((3, 2)), np.array([2, 4]), 4), ep.dropped_rows()

    (first, dropped), (second, _) = in_threads(2, rank)
    assert (first.counts.tolist(), second.counts.tolist(), dropped) == ([2, 2], [1, 1], 3)


def test_what_cannot_be_meant_is_refused(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        rows, counts = np.ones((4, 2), dtype=np.float32), np.array([2, 2])
        for send, given, capacity, says in (
            (rows, np.array([2, 1, 1]), 2, "must be int32 or int64 of shape"),
            (rows, counts.astype(np.float32), 2, "send_counts: is float32"),
            (rows, counts, 0, "capacity: is 0"),
            (rows, counts, None, "without capacity"),
            (np.zeros(4, dtype="V12"), counts, 2, "do not fill"),
            (rows, [2, 2], 2, "send_counts: is a list"),
        ):
            with pytest.raises(InvalidArgument, match=says):
                ep.all_to_all_fixed(send, given, capacity)
        return ep.all_to_all_fixed(rows, counts, 2).counts.tolist()

    assert in_threads(2, rank) == [[2, 2]] * 2
