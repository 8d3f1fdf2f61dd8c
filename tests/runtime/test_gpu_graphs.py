"""CUDA graphs on GPUs and an NCCL made of threads: what a recording holds, keeps and refuses."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from runtime.attach import attach
from runtime.communicators.library import LAUNCH_ORDER
from synth.errors import InvalidUsage
from tests.runtime import fake_gpu
from tests.runtime.fake_gpu import current, put

pytestmark = pytest.mark.usefixtures("untold")


def test_a_graph_replays_fixed_capacity_with_other_counts(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        send, counts = put(np.zeros((9, 2), dtype=np.int32)), put(np.zeros(3, dtype=np.int64))
        recording = ep.record(lambda: ep.all_to_all_fixed(send, counts, 2), send)
        found = []
        for turn in range(3):
            counts.a[:] = [turn, 3, 1]
            send.a[:] = np.arange(18).reshape(9, 2) + 100 * ep.rank + 1000 * turn
            received = recording.replay()
            current().synchronize()
            found.append((received.rows.a.copy(), received.counts.a.copy(), received.dropped.a.copy()))
        calls = sum(entry.calls for entry in ep.stats().operations.values())
        sent = {peer: edge.messages for peer, edge in ep.stats().edges.items()}
        ep.close()
        with pytest.raises(InvalidUsage, match="group is closed"):
            recording.replay()
        return found, calls, sent

    for me, (found, calls, sent) in enumerate(on_gpus(3, rank)[0]):
        assert calls == 4  # one before it was recorded, and three replays
        assert set(sent.values()) <= {4}
        for turn, (rows, counts, dropped) in enumerate(found):
            wanted = [turn, 3, 1]
            kept = min(wanted[me], 2)
            assert (counts.tolist(), dropped.tolist()) == ([kept] * 3, [wanted[me] - kept] * 3)
            for origin in range(3):
                right = np.arange(18).reshape(9, 2)[sum(wanted[:me]) :][:kept] + 100 * origin + 1000 * turn
                np.testing.assert_array_equal(rows[origin, :kept], right)


def test_link_classes_in_a_graph(on_gpus, two_nodes, monkeypatch):
    monkeypatch.delenv(LAUNCH_ORDER, raising=False)

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.zeros(32, dtype=np.int32))
        recording = ep.record(lambda: ep.all_to_all(x, counts=np.full((16, 16), 2))[0], x)
        for turn in range(2):
            x.a[:] = np.arange(32) + 1000 * ep.rank + turn
            result = recording.replay().get()
            right = [np.arange(2 * ep.rank, 2 * ep.rank + 2) + 1000 * origin + turn for origin in range(16)]
            assert result.tolist() == np.concatenate(right).tolist()
        ep.close()
        return True

    assert on_gpus(16, rank)[0] == [True] * 16


def test_a_graph_keeps_every_array_it_works_on(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x, between = put(np.arange(8, dtype=np.int16)), []

        def twice():
            once = ep.all_reduce(x)
            between.append(weakref.ref(once))
            return ep.all_reduce(once)

        before = current()
        recording = ep.record(twice, x)
        gc.collect()
        assert communicator.memory.stream is before  # the stream that recorded is given back
        assert [array() is None for array in between] == [True, False]
        communicator.synchronize()
        found = recording.replay().get().tolist()
        ep.close()
        gc.collect()
        assert between[1]() is None
        return found

    assert on_gpus(2, rank)[0] == [(4 * np.arange(8)).tolist()] * 2


def test_what_a_graph_cannot_hold_is_refused_in_words(on_gpus, monkeypatch):
    monkeypatch.setattr("runtime.schedules.PROGRAMS_KEPT", 1)

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.arange(8, dtype=np.int32))
        uneven = np.array([[3, 5], [6, 2]])
        with pytest.raises(InvalidUsage, match="record: the call uses wait=False"):
            ep.record(lambda: ep.all_reduce(x, wait=False), x)
        with pytest.raises(InvalidUsage, match="record: the call exchanges counts"):
            ep.record(lambda: ep.all_to_all(x), x)
        with pytest.raises(InvalidUsage, match="was not made before"):
            ep.record(lambda: [ep.all_to_all(x, counts=counts) for counts in (uneven, uneven[:, ::-1].copy())], x)
        stream = fake_gpu.Stream()
        stream.begin_capture()
        with stream, pytest.raises(InvalidUsage, match="wait=False: the caller's stream is capturing"):
            ep.all_reduce(x, wait=False)
        stream.end_capture()
        recv, _ = ep.all_to_all(x, counts=uneven)
        return recv.get().tolist()

    assert on_gpus(2, rank)[0] == [[0, 1, 2, 0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 6, 7]]


def test_the_watchdog_spoils_no_capture_of_the_caller(on_gpus):
    together = threading.Barrier(2)  # the ranks are one process here: while one captures the other must not ask

    def rank(communicator):
        ep = attach(communicator=communicator)
        ready, x = threading.Event(), put(np.arange(8, dtype=np.int16))
        ep.all_reduce(x)
        current().submit(lambda: ready.wait(20))  # keeps the next round under way
        ep.all_reduce(x)
        stream = fake_gpu.Stream()
        together.wait(20)
        stream.begin_capture(fake_gpu.GLOBAL)
        time.sleep(0.3)
        stream.end_capture()
        together.wait(20)
        ready.set()
        communicator.synchronize()
        ep.close()
        return True

    assert on_gpus(2, rank)[0] == [True, True]


def test_a_capture_of_the_caller_in_global_mode_holds_the_whole_call(on_gpus):
    """What CUDA forbids then (asking for events, waiting, another thread's work, loading kernels) is not done."""
    together = threading.Barrier(2)

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.arange(8, dtype=np.int16))
        for _ in range(6):  # the first calls are timed
            ep.all_reduce(x)
        communicator.synchronize()
        stream = fake_gpu.Stream()
        together.wait(20)
        stream.begin_capture(fake_gpu.GLOBAL)
        with stream:
            y = ep.all_reduce(x)
        together.wait(20)
        graph = stream.end_capture()
        together.wait(20)
        x.a[:] += 1
        graph.launch(current())
        found = y.get().tolist()
        ep.close()
        return found

    assert on_gpus(2, rank)[0] == [(2 * np.arange(8) + 2).tolist()] * 2


def test_a_capture_of_the_caller_is_not_spoilt_by_what_needs_the_host(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.arange(32, dtype=np.int16))
        counts = np.full((2, 2), 16)
        ep.all_reduce(x)
        stream = fake_gpu.Stream()
        stream.begin_capture()
        with stream:
            for call in (lambda: ep.all_gather(x), lambda: ep.all_to_all(x), lambda: ep.all_to_all(x, counts=counts)):
                with pytest.raises(InvalidUsage, match="a graph is being recorded, and what the ranks exchange first"):
                    call()
            with pytest.raises(InvalidUsage, match="of a call that was not made before"):
                ep.all_reduce(x.view(np.uint16))  # the same program, but a kernel that was not loaded
        stream.end_capture()
        found = ep.all_gather(x[:1], counts=[1, 1]).get().tolist()
        ep.close()
        return found

    assert on_gpus(2, rank)[0] == [[0, 0]] * 2


def test_under_an_order_of_launches_no_graph_of_the_caller_is_recorded(on_gpus, monkeypatch):
    monkeypatch.setenv(LAUNCH_ORDER, "1")

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.arange(8, dtype=np.int16))
        ep.all_reduce(x)
        stream = fake_gpu.Stream()
        stream.begin_capture()
        with stream, pytest.raises(InvalidUsage, match=f"a graph is being recorded, but {LAUNCH_ORDER} is 1"):
            ep.all_reduce(x)
        stream.end_capture()
        return ep.all_reduce(x).get().tolist()

    assert on_gpus(2, rank)[0] == [(2 * np.arange(8)).tolist()] * 2


def test_scratch_in_a_graph_of_the_caller_stays(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = put(np.arange(60, dtype=np.int16))
        ep.all_reduce(x)
        communicator.synchronize()
        scratch, stream = weakref.ref(communicator.memory._scratch), fake_gpu.Stream()
        assert scratch().size
        stream.begin_capture()
        with stream:
            y = ep.all_reduce(x)
        graph = stream.end_capture()
        ep.all_reduce(put(np.arange(800, dtype=np.int16)))
        gc.collect()
        assert scratch() is not None
        assert communicator.memory._scratch is not scratch()
        graph.launch(current())
        found = y.get().tolist()
        ep.close()
        return found

    assert on_gpus(2, rank)[0] == [(2 * np.arange(60)).tolist()] * 2
