"""What the runtime does on GPUs, with GPUs and NCCL made of threads: streams, splits, registration, times, failure."""

import json
import os
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.attach import attach
from runtime.communicators import nccl
from runtime.communicators import registered as registered_memory
from runtime.communicators.library import LAUNCH_ORDER
from runtime.cuda.memory import _external
from runtime.rendezvous import meet
from solver import portfolio
from synth import plan as plans
from synth.collective import Collective, Demand
from synth.errors import InvalidArgument, InvalidUsage, RemoteError
from synth.topology import catalog
from tests.client.stub import reply, stub
from tests.runtime import fake_gpu
from tests.runtime.fake_gpu import put

pytestmark = pytest.mark.usefixtures("untold")


def test_groups_name_the_array_module_of_their_memory(on_gpus):
    def rank(communicator):
        return attach(communicator=communicator).xp is sys.modules["cupy"]

    assert on_gpus(2, rank)[0] == [True, True]


def test_operations_and_their_device_times(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.arange(12, dtype=np.int16) + ep.rank  # NCCL has no such type: the direct exchange adds
        matrix = np.array([[2, 1, 0], [3, 3, 1], [1, 0, 4]])
        send = put(np.arange(matrix[ep.rank].sum(), dtype=np.int16) + 100 * ep.rank)
        for _ in range(6):
            summed = ep.all_reduce(put(x))
            recv, _ = ep.all_to_all(send, counts=matrix)
        handle = ep.all_reduce(put(x + 1), wait=False)
        later = handle.wait()
        communicator.synchronize()
        assert summed.get().tolist() == (3 * np.arange(12) + 3).tolist()
        assert later.get().tolist() == (3 * np.arange(12) + 6).tolist()
        wanted = [
            np.arange(matrix[o].sum())[matrix[o, : ep.rank].sum() :][: matrix[o, ep.rank]] + 100 * o for o in range(3)
        ]
        assert recv.get().tolist() == np.concatenate(wanted).tolist()
        stats = ep.stats()
        ep.close()
        return stats

    for stats in on_gpus(3, rank)[0]:
        entry = stats.operations["allreduce", "direct"]
        assert entry.calls == 7
        assert entry.timed_calls == 4  # the first ones; then a sample
        assert 0 < entry.wait_seconds <= entry.seconds < 5
        assert all(0 < edge.timed_bytes < edge.bytes and edge.bytes_per_s > 0 for edge in stats.edges.values())


def test_fixed_capacity_reads_nothing_on_the_host(on_gpus, monkeypatch):
    ready = threading.Barrier(3)

    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.all_to_all_fixed(put(np.zeros((9, 2), dtype=np.float32)), put(np.full(3, 3)), 3)  # memory is taken once
        ready.wait(20)
        monkeypatch.setattr(fake_gpu.Array, "get", lambda self: pytest.fail("the host read from the device"))
        monkeypatch.setattr(fake_gpu.Stream, "synchronize", lambda self: pytest.fail("the host waited"))
        counts = np.array([1, 4, 2])
        send = put(np.arange(7 * 2, dtype=np.float32).reshape(7, 2) + 100 * ep.rank)
        received = ep.all_to_all_fixed(send, put(counts), 3)
        event = fake_gpu.Event()
        event.record(communicator.memory.stream)
        event.future.result()
        return received

    results = on_gpus(3, rank)[0]
    for me, received in enumerate(results):
        kept = (1, 3, 2)[me]
        assert received.counts.a.tolist() == [kept] * 3
        assert received.dropped.a.tolist() == [(0, 1, 0)[me]] * 3
        for origin in range(3):
            right = np.arange(14, dtype=np.float32).reshape(7, 2)[(0, 1, 5)[me] :][:kept] + 100 * origin
            np.testing.assert_array_equal(received.rows.a[origin, :kept], right)


MACHINE_1 = catalog.build("hgx-h100x1").gpus


@pytest.mark.parametrize(("version", "order", "beside"), [(22809, "1", True), (22809, "0", False), (22403, "1", False)])
def test_each_link_class_has_its_communicator(on_gpus, two_nodes, monkeypatch, version, order, beside):
    """Two nodes: NVLink messages among each node's ranks, network messages among all, and every byte right."""
    monkeypatch.setenv(LAUNCH_ORDER, order)

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.arange(32, dtype=np.int32) + 1000 * ep.rank
        for _ in range(2):
            recv, _ = ep.all_to_all(put(x), counts=np.full((16, 16), 2))
        communicator.synchronize()
        right = np.concatenate([np.arange(2 * ep.rank, 2 * ep.rank + 2) + 1000 * origin for origin in range(16)])
        assert recv.get().tolist() == right.tolist()
        reason = ep.stats().reasons["alltoall"]
        ep.close()
        return reason

    reasons, hub = on_gpus(16, rank, version=version)
    assert reasons[0].endswith("a communicator each for network and nvlink")
    splits = [call for call in hub.calls if call[1] == "split"]
    assert {color for _, _, color in splits} == {0, 8}
    groups = [call for call in hub.calls if call[1] == "group" and len(call[4]) == 14 and call[0] < 8]
    assert groups  # seven peers each way: the ranks of a node
    streams = {call[3] for call in hub.calls if call[1] == "group"}
    assert len(streams) == (48 if beside else 16)  # each rank's own, and one per part where they run beside each other


def test_nothing_is_split_and_no_order_is_set_unless_asked_for(on_gpus, two_nodes, monkeypatch):
    monkeypatch.delenv("SYNTH_LINK_CLASSES")
    monkeypatch.delenv(LAUNCH_ORDER, raising=False)

    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.prepare("alltoall")
        ep.close()

    _, hub = on_gpus(16, rank)
    assert not [call for call in hub.calls if call[1] == "split"]
    assert LAUNCH_ORDER not in os.environ


def test_under_an_order_of_launches_no_graph_is_recorded(on_gpus, monkeypatch):
    monkeypatch.setenv(LAUNCH_ORDER, "1")

    def rank(communicator):
        ep = attach(communicator=communicator)
        with pytest.raises(InvalidUsage, match=f"record: {LAUNCH_ORDER} is 1"):
            ep.record(lambda: None, put(np.zeros(1)))
        return ep.is_valid()

    assert on_gpus(2, rank)[0] == [True, True]


@pytest.mark.parametrize("classes", ["off", "on"])
@pytest.mark.parametrize("registers", [True, False])
def test_messages_lie_in_registered_memory_on_all_ranks_or_on_none(on_gpus, tmp_path, monkeypatch, registers, classes):
    monkeypatch.setenv("SYNTH_REGISTER", "on")
    monkeypatch.setenv("SYNTH_LINK_CLASSES", classes)
    monkeypatch.setattr(registered_memory, "_LEAST", 64)
    machine = catalog.build("asym8")
    for collective in (Collective.ALLTOALL, Collective.ALLREDUCE):
        demand = Demand(collective=collective, ranks=8, bytes=10**6)
        plans.save(portfolio.solve(machine, demand).plan, tmp_path / f"{collective.value}.json")
    monkeypatch.setenv("SYNTH_PLAN_FILE", ":".join(map(str, sorted(tmp_path.glob("*.json")))))
    monkeypatch.setenv("SYNTH_TOPOLOGY", "asym8")
    monkeypatch.setenv("SYNTH_TRIAL", "off")

    def rank(communicator):
        ep = attach(communicator=communicator, collectives=["alltoall", "allreduce"])
        for count in (3, 40, 3):  # grows the memory between operations
            x = put(np.arange(8 * count, dtype=np.int32) + ep.rank)
            matrix = np.full((8, 8), count)
            rows = ep.all_to_all(x, counts=matrix)[0].get().reshape(8, count)
            np.testing.assert_array_equal(rows[:, 0], count * ep.rank + np.arange(8))
            np.testing.assert_array_equal(ep.all_reduce(x).get(), 8 * np.arange(8 * count) + 28)
        recording = ep.record(lambda: ep.all_reduce(x, out=x), x)
        x.fill(ep.rank)
        recording.replay()
        communicator.synchronize()
        np.testing.assert_array_equal(x.get(), 28)
        on = communicator.registered is not None
        ep.close()
        return on

    results, hub = on_gpus(8, rank, registers=registers)
    assert results == [registers] * 8
    mine = [call[1] for call in hub.calls if call[0] == 0]
    assert mine.count("register") == mine.count("deregister")
    assert ("register" in mine) == registers


def test_registering_on_some_ranks_only_is_refused(on_gpus, monkeypatch):
    monkeypatch.setenv("SYNTH_REGISTER", "on")

    def off_at_rank_1(store, name, place, deadline, own):
        return meet(store, name, place, deadline, (b"\0" if place.rank == 1 else own[:1]) + own[1:])

    monkeypatch.setattr(nccl, "meet", off_at_rank_1)
    with pytest.raises(InvalidUsage, match="SYNTH_REGISTER: is on at rank 0 and off at rank 1; it must be the same"):
        on_gpus(2, lambda communicator: None)


def test_a_rank_that_dies_is_named_and_its_peers_are_freed(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        matrix = np.full((3, 3), 2)
        ep.all_to_all(put(np.arange(6)), counts=matrix)
        communicator.synchronize()
        if ep.rank == 2:
            return 2
        communicator.deadline = 0.5
        began = time.monotonic()
        ep.all_to_all(put(np.arange(6)), counts=matrix)
        with pytest.raises(RemoteError) as error:
            communicator.synchronize()
        assert time.monotonic() - began < 10
        assert not ep.is_valid()
        return error.value.rank

    results, hub = on_gpus(3, rank)
    assert results == [2, 2, 2]
    assert {call[0] for call in hub.calls if call[1] == "abort"} == {0, 1}


def test_parts_fail_with_the_whole(on_gpus):
    """A rank of one part dies; the error names it as the whole does, and every communicator is aborted."""

    def rank(communicator):
        part = communicator.split(communicator.rank // 2)
        assert (part.rank, part.size) == (communicator.rank % 2, 2)
        assert part.gather(b"%d" % communicator.rank) == [b"%d" % (communicator.rank // 2 * 2 + n) for n in range(2)]
        assert communicator.split(None if communicator.rank else 5) is None or communicator.rank == 0
        if communicator.rank == 3:
            return 3
        communicator.deadline = 0.5
        if communicator.rank < 2:  # its own part is fine: it must not hear of rank 3 by itself
            assert part.gather(b"x") == [b"x"] * 2
            return 3
        with pytest.raises(RemoteError) as error:
            part.gather(b"x")
        assert not part.is_valid()
        return error.value.rank

    assert on_gpus(4, rank)[0] == [3] * 4


def test_edges_are_reported_from_a_gpu(on_gpus, monkeypatch):
    monkeypatch.setenv("SYNTH_TOPOLOGY", "hgx-h100x1")
    monkeypatch.setenv("SYNTH_TELEMETRY", "on")
    monkeypatch.setenv("SYNTH_TIMEOUT", "1")
    monkeypatch.setenv("SYNTH_CACHE", "off")

    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.all_reduce(put(np.arange(40, dtype=np.int16)))
        ep.close()

    with stub(reply("404 Not Found", b'{"code": "unknown", "detail": "no"}')) as server:
        monkeypatch.setenv("SYNTH_SERVER", server.url)
        on_gpus(2, rank)
        for thread in threading.enumerate():
            if thread.name == "synth-telemetry":
                thread.join(10)
        told = [one.partition(b"\r\n\r\n")[2] for one in server.requests if one.startswith(b"POST /v1/telemetry")]
    edges = [edge for one in told for edge in json.loads(one)["edges"]]
    assert {(edge["src"], edge["dst"]) for edge in edges} == {
        (MACHINE_1[0], MACHINE_1[1]),
        (MACHINE_1[1], MACHINE_1[0]),
    }
    assert all(edge["bytes"] == 80 and edge["seconds"] > 0 for edge in edges)


def test_warm_up_on_a_gpu(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        seconds = ep.warm_up()
        ep.close()
        return sorted(seconds)

    results, hub = on_gpus(3, rank)
    assert results == [[1, 2], [0, 2], [0, 1]]
    assert all(len(call[4]) <= 2 for call in hub.calls if call[1] == "group" and len(call[4]) < 6)


def test_arrays_on_the_host_are_refused_in_words(on_gpus):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.arange(8, dtype=np.int16)
        for call in (ep.all_reduce, ep.all_to_all, lambda x: ep.all_to_all_fixed(x, np.full(2, 4), 4)):
            with pytest.raises(InvalidArgument, match="the array lies on the host, but transport fake moves"):
                call(x)
        return ep.all_reduce(put(x)).get().tolist()

    assert on_gpus(2, rank)[0] == [(2 * np.arange(8)).tolist()] * 2


def test_a_stream_of_torch_is_wrapped_once_without_a_warning(monkeypatch):
    made = []

    def external(pointer, device):
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
        made.append((pointer, device))
        return SimpleNamespace(ptr=pointer)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(ExternalStream=external)))
    _external.cache_clear()
    assert _external(7, 0) is _external(7, 0)
    assert _external(9, 0).ptr == 9
    assert made == [(7, 0), (9, 0)]
    _external.cache_clear()
