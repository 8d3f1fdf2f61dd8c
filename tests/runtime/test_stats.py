"""Statistics: totals stay right however many programs there are, and times come when the clock has them."""

import numpy as np
import pytest

from runtime.buffers import HostMemory
from runtime.direct import direct_plan
from runtime.stats import PENDING_KEPT, TALLIES_KEPT, Stats
from synth.collective import Collective
from synth.plan.lowering import Lowering


class Clock(HostMemory):
    """Marks are numbers; what lies after ``reached`` has not happened yet."""

    def __init__(self):
        super().__init__()
        self.reached, self.back = -1, 0

    def elapsed(self, first, second):
        return None if second[0] > self.reached else second[0] - first[0]

    def recycle(self, marks):
        self.back += len(marks)


def program(number):
    counts = np.full((3, 3), number + 1)
    return Lowering(direct_plan(Collective.ALLTOALL, 3), 0).program(counts)


def test_edges_of_many_programs_add_up():
    stats, programs = Stats(0, HostMemory()), [program(number) for number in range(TALLIES_KEPT + 20)]
    for turn in range(2):
        for number, one in enumerate(programs):
            tally = stats.tally("alltoall", "direct", 12 * (number + 1), one, 4)
            tally.count()
            stats.timed(tally, [0.0, 1.0, 3.0, 4.0])
        if turn == 0:
            assert stats.edges[1].messages == len(programs)
    elements = sum(number + 1 for number in range(len(programs)))
    for peer in (1, 2):
        edge = stats.edges[peer]
        assert (edge.messages, edge.bytes, edge.timed_bytes) == (2 * len(programs), 8 * elements, 8 * elements)
        assert edge.seconds == pytest.approx(2.0 * 2 * len(programs))
    entry = stats.operations["alltoall", "direct"]
    assert (entry.calls, entry.timed_calls, entry.rounds) == (2 * len(programs),) * 3
    assert entry.bytes == entry.timed_bytes == 2 * 12 * elements
    assert (entry.seconds, entry.wait_seconds) == pytest.approx((8.0 * len(programs), 4.0 * len(programs)))


def test_times_come_once_the_device_has_passed_the_marks():
    clock, one = Clock(), program(0)
    stats = Stats(0, clock)
    tally = stats.tally("alltoall", "direct", 12, one, 4)
    for number in range(3):
        tally.count()
        stats.timed(tally, [(10 * number + step,) for step in (0, 1, 4, 9)])
    assert stats.edges[1].timed_bytes == 0
    clock.reached = 19
    assert stats.edges[1].timed_bytes == 2 * 4
    assert stats.edges[1].bytes == 3 * 4
    assert stats.operations["alltoall", "direct"].seconds == 18
    assert stats.edges[1].seconds == 6
    assert clock.back == 8
    clock.reached = 29
    stats.settle()
    assert stats.operations["alltoall", "direct"].timed_calls == 3


def test_marks_that_are_never_reached_do_not_pile_up():
    stats = Stats(0, Clock())
    tally = stats.tally("allreduce", "native", 8, None, 4)
    for number in range(PENDING_KEPT + 50):
        tally.count()
        stats.timed(tally, [(number,), (number + 1,)])
    assert len(stats._pending) == PENDING_KEPT
    assert stats.operations["allreduce", "native"].timed_calls == 0
    assert "synth_collective_timed_calls_total" in stats.prometheus()
    assert "0 s" in stats.text() or "0.00" in stats.text()


def test_a_program_whose_time_comes_late_is_still_added_up():
    clock = Clock()
    stats = Stats(0, clock)
    first = stats.tally("alltoall", "direct", 12, program(0), 4)
    first.count()
    stats.timed(first, [(0,), (1,), (2,), (3,)])
    for number in range(TALLIES_KEPT + 1):
        stats.tally("alltoall", "direct", 12, program(number), 4)
    clock.reached = 100
    stats.again(first)  # as the replay of a recording does
    assert (stats.edges[1].bytes, stats.edges[1].timed_bytes, stats.edges[1].seconds) == (8, 4, 1)
