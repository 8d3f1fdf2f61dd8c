"""Phases of :mod:`tests.gpu.worker` about what the group does on a device; each part leaves its result at once."""

import os
import tempfile
import time
from pathlib import Path

import cupy
import numpy as np

import synth
from runtime.direct import direct_plan
from runtime.schedules import Operation
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InvalidUsage
from synth.topology import catalog


def _expect(condition, *says):
    if not condition:
        raise AssertionError(" ".join(map(str, says)))


def _same(found, right, *says):
    _expect(bool((cupy.asarray(found) == cupy.asarray(right)).all()), "wrong data:", *says)


def _counts(rank, size, turn):
    return np.array([(5 * rank + 3 * peer + turn) % 9 for peer in range(size)])


def _check_received(received, ep, turn, capacity, width):
    for origin in range(ep.size):
        counts = _counts(origin, ep.size, turn)
        kept, begin = min(int(counts[ep.rank]), capacity), int(counts[: ep.rank].sum())
        _expect(int(received.counts[origin]) == kept, "counts", origin, turn)
        _expect(int(received.dropped[origin]) == int(counts[ep.rank]) - kept, "dropped", origin, turn)
        right = cupy.arange(counts.sum() * width, dtype=cupy.int32).reshape(-1, width) % 1000 + origin
        _same(received.rows[origin, :kept], right[begin : begin + kept].astype(received.rows.dtype), origin, turn)


def fixed_phase(folder, leave):
    """Warm-up, fixed capacity (eager, other stream, handle, graph with changing counts), outputs over inputs."""
    files = sorted(str(path) for path in Path(folder).glob("ndv2x1-*.json"))
    os.environ["SYNTH_PLAN_FILE"] = ":".join(files)
    ep = synth.attach(deadline=25)
    rank, size = ep.rank, ep.size
    steps = []
    connected = ep.warm_up("alltoall", "allreduce", progress=lambda *step: steps.append(step))
    leave(warm_up=round(sum(step[2] for step in steps), 3), steps=len(steps), peers=len(connected))

    capacity, width = 6, 33
    most = 9 * size
    for dtype in (cupy.float32, cupy.float16, cupy.int8):
        send, given = cupy.zeros((most, width), dtype=dtype), cupy.zeros(size, dtype=cupy.int64)

        def fill(turn, send=send, given=given, dtype=dtype):
            counts = _counts(rank, size, turn)
            rows = cupy.arange(counts.sum() * width, dtype=cupy.int32).reshape(-1, width) % 1000 + rank
            send[: len(rows)] = rows.astype(dtype)
            given[:] = cupy.asarray(counts)

        for turn in range(3):
            fill(turn)
            _check_received(ep.all_to_all_fixed(send, given, capacity), ep, turn, capacity, width)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            fill(3)
            _check_received(ep.all_to_all_fixed(send, given, capacity), ep, 3, capacity, width)
        fill(4)
        _check_received(ep.all_to_all_fixed(send, given, capacity, wait=False).wait(), ep, 4, capacity, width)
        recording = ep.record(lambda send=send, given=given: ep.all_to_all_fixed(send, given, capacity), send)
        for turn in range(5, 9):  # other counts without recording again
            fill(turn)
            _check_received(recording.replay(), ep, turn, capacity, width)
        leave(fixed=np.dtype(dtype).name, dropped=ep.dropped_rows())
    began = time.perf_counter()
    for _ in range(50):
        ep.all_to_all_fixed(send, given, capacity)
    leave(fixed_issue_us=(time.perf_counter() - began) / 50 * 1e6)

    calls = {
        "allreduce": (lambda x: ep.all_reduce(x, out=x), lambda x: ep.all_reduce(x)),
        "reduce_scatter": (
            lambda x: ep.reduce_scatter(x, out=cupy.split(x, size)[rank]), lambda x: ep.reduce_scatter(x)),
        "allgather": (
            lambda x: ep.all_gather(cupy.split(x, size)[rank], out=x),
            lambda x: ep.all_gather(cupy.split(x, size)[rank])),
        "broadcast": (lambda x: ep.broadcast(x, root=2, out=x), lambda x: ep.broadcast(x, root=2)),
        "alltoall": (
            lambda x: ep.all_to_all(x, counts=np.full((size, size), 5), out=x)[0],
            lambda x: ep.all_to_all(x, counts=np.full((size, size), 5))[0]),
    }  # fmt: skip
    for name, (over, apart) in calls.items():
        operation = Operation(Collective(name), 2 if name == "broadcast" else None)
        ways = []
        for forced in (None, "direct", "native"):
            ep._runner.ready(operation).forced = forced
            for dtype in (cupy.float32, cupy.int8):
                x = (cupy.arange(5 * size * 40) % 7 + rank).astype(dtype).reshape(5 * size, 40)
                _same(over(x.copy()), apart(x.copy()), name, forced, np.dtype(dtype).name)
            ways.append(str(forced))
        ep._runner.ready(operation).forced = None
        leave(in_place=name, ways=ways)
    leave(stats=ep.stats().text().splitlines())
    ep.close()


def classes_phase(folder, leave):
    """A communicator per link class, eager and in a graph."""
    machine = catalog.build("asym8")
    plan = direct_plan(Collective.ALLTOALL, 8).with_(ranks=machine.gpus, topology=machine.fingerprint)
    with tempfile.TemporaryDirectory() as own:
        plans.save(plan, f"{own}/plan.json")
        os.environ.update(SYNTH_PLAN_FILE=f"{own}/plan.json", SYNTH_TOPOLOGY="asym8", SYNTH_LINK_CLASSES="on")
        ep = synth.attach(deadline=25, collectives=["alltoall"])
    rank, size = ep.rank, ep.size
    reason = ep.stats().reasons["alltoall"]
    leave(reason=reason.rpartition(", ")[2], beside=ep._communicator.concurrent)
    _expect("a communicator each" in reason, reason)
    leave(peers=len(ep.warm_up()))
    matrix = np.array([[(a + 2 * b) % 5 * 700 for b in range(size)] for a in range(size)])

    def right(turn):
        parts = []
        for origin in range(size):
            begin = int(matrix[origin, :rank].sum())
            parts.append(np.arange(begin, begin + matrix[origin, rank]) % 251 + origin + turn)
        return np.concatenate(parts).astype(np.int32)

    x = cupy.zeros(int(matrix[rank].sum()), dtype=cupy.int32)

    def fill(turn):
        x[:] = cupy.arange(len(x)) % 251 + rank + turn

    for turn in range(10):
        fill(turn)
        _same(ep.all_to_all(x, counts=matrix)[0], right(turn), "by class", turn)
    leave(eager=True)
    if ep._communicator.may_record() is not None:  # with an order of launches: no graphs
        ep.close()
        return
    recording = ep.record(lambda: ep.all_to_all(x, counts=matrix)[0], x)
    for turn in range(10, 16):
        fill(turn)
        _same(recording.replay(), right(turn), "by class, graph", turn)
    leave(graph=True)
    ep.close()


def registered_phase(folder, leave):
    """Scratch registered or not, arrays of CuPy's pool or of NCCL's own memory, eager and in graphs: wrong elements."""
    files = sorted(str(path) for path in Path(folder).glob("ndv2x1-*.json"))
    wrong = 0
    for scratch in ("off", "on"):
        os.environ.update(SYNTH_REGISTER=scratch, SYNTH_PLAN_FILE=":".join(files))
        ep = synth.attach(deadline=25)
        library = ep._communicator._library
        _expect((ep._communicator.registered is not None) == (scratch == "on"), "nothing was registered")
        for kind in ("pool", "nccl"):
            for count in (ep.size * 100, ep.size * 400_000):
                pointers = []
                x, out, rows, got = (_memory(kind, library, count, pointers) for _ in range(4))
                for way in (None, "direct", "native"):
                    for collective in (Collective.ALLREDUCE, Collective.ALLTOALL):
                        ep._runner.ready(Operation(collective)).forced = way
                    virtual = kind == "nccl" and scratch == "off" and way != "native"
                    found = _exchanges(ep, x, out, rows, got, refused=virtual)
                    leave(scratch=scratch, data=kind, count=count, way=str(way), wrong=found)
                    wrong += sum(found)
                del x, out, rows, got
                cupy.cuda.Device().synchronize()
                for pointer in pointers:
                    library.free(pointer)
        ep.close()
    _expect(not wrong, wrong, "elements are wrong")


def _exchanges(ep, x, out, rows, got, refused):
    """Wrong elements of allreduces and alltoalls, eager and in a graph that is replayed or refused."""
    rank, size, count, found = ep.rank, ep.size, len(x), []
    places = cupy.arange(count)
    matrix = np.full((size, size), count // size)

    def fill(turn):
        x[:] = places % 1009 + rank + turn
        rows[:] = places % 1013 + rank + turn

    def check(turn):
        right = size * (places % 1009 + turn) + size * (size - 1) / 2
        found.append(int((out != right).sum()))
        right = (places % 1013).reshape(size, -1)[rank] + turn + cupy.arange(size)[:, None]
        found.append(int((got.reshape(size, -1) != right).sum()))

    def both():
        ep.all_reduce(x, out=out)
        return ep.all_to_all(rows, counts=matrix, out=got)[0]

    for turn in range(3):
        fill(turn)
        both()
        check(turn)
    try:
        recording = ep.record(both, x)
    except InvalidUsage as error:
        _expect(refused and "virtual memory" in str(error), error)
        return found
    _expect(not refused or os.environ.get("NCCL_GRAPH_REGISTER") == "0", "recorded on virtual memory")
    for turn in range(3, 6):
        fill(turn)
        recording.replay()
        check(turn)
    return found


def _memory(kind, library, count, pointers):
    """An array of CuPy's pool, or of memory that NCCL allocated, which is not registered."""
    if kind == "pool":
        return cupy.zeros(count, dtype=cupy.float32)
    pointers.append(library.allocate(4 * count))
    memory = cupy.cuda.UnownedMemory(pointers[-1], 4 * count, library, device_id=0)
    return cupy.ndarray(count, dtype=cupy.float32, memptr=cupy.cuda.MemoryPointer(memory, 0))


def trial_phase(folder, leave):
    """Trials, prices per call and device times; edges go to a server at close."""
    machine = catalog.build("asym8")
    solved = plans.load(f"{folder}/asym8-alltoall.json")
    direct = direct_plan(Collective.ALLTOALL, 8).with_(ranks=solved.ranks, topology=solved.topology)
    with tempfile.TemporaryDirectory() as own:
        plans.save(direct, f"{own}/direct.json")
        files = [f"{folder}/asym8-alltoall.json", f"{own}/direct.json", f"{folder}/asym8-allreduce.json"]
        os.environ.update(SYNTH_PLAN_FILE=":".join(files), SYNTH_TOPOLOGY="asym8", SYNTH_TRIAL="auto")
        ep = synth.attach(deadline=25, collectives=["alltoall", "allreduce"])
    rank, size = ep.rank, ep.size
    _expect(machine.fingerprint == solved.topology, "the plan is for another machine")
    rng = np.random.default_rng(3)
    for number, most in enumerate((8, 4000, 60_000)):
        even = np.full((size, size), most)
        uneven = rng.integers(0, most, (size, size))
        for matrix in (even, uneven, even, uneven):
            x = cupy.arange(int(matrix[rank].sum()), dtype=cupy.int32) % 1009 + rank
            found, _ = ep.all_to_all(x, counts=matrix)
            begins = [int(matrix[origin, :rank].sum()) for origin in range(size)]
            right = [cupy.arange(b, b + int(matrix[o, rank])) % 1009 + o for o, b in enumerate(begins)]
            _same(found, cupy.concatenate(right), "alltoall", most, number)
        y = cupy.arange(size * most, dtype=cupy.float32) % 100 + rank
        right = size * (cupy.arange(size * most) % 100) + size * (size - 1) / 2
        _same(ep.all_reduce(y), right, "allreduce", most)
        _same(ep.all_reduce(y.copy(), out=y), right, "allreduce again", most)
        leave(size=most, trials=[trial.reason for trial in ep.stats().trials])
    rows = cupy.zeros((size * 4000,), dtype=cupy.int32)
    recording = ep.record(lambda: ep.all_to_all(rows, counts=np.full((size, size), 4000))[0], rows)
    for turn in range(3):
        rows.fill(10 * rank + turn)
        _expect(recording.replay()[::4000].get().tolist() == [10 * peer + turn for peer in range(size)], "graph")
    ep._communicator.synchronize()
    stats = ep.stats()
    operations = {
        f"{a}: {b}": [e.calls, e.timed_calls, e.seconds, e.wait_seconds] for (a, b), e in stats.operations.items()
    }
    edges = {peer: [edge.bytes, edge.timed_bytes, edge.seconds] for peer, edge in stats.edges.items()}
    leave(operations=operations, edges=edges)
    _expect(any(timed and seconds > 0 for _, timed, seconds, _ in operations.values()), "no call was timed")
    ep.close()
    leave(closed=True)


def statistics_phase(folder, leave):
    """What counting and timing adds to issuing a call of 1 MiB, on and off in turns."""
    from tests.bench.statistics import cost, overhead

    os.environ.pop("SYNTH_PLAN_FILE", None)
    ep = synth.attach(deadline=25)
    for forced in ("native", "direct"):
        ep._runner.ready(Operation(Collective.ALLTOALL)).forced = forced if forced == "direct" else None
        x = cupy.zeros((ep.size, 2**20 // ep.size), dtype=cupy.uint8)
        plain, extra, noise = overhead(ep, x, turns=250, block=10)
        leave(schedule=forced, issue_us=plain * 1e6, added_us=extra * 1e6, noise_us=noise * 1e6, share=extra / plain)
    leave(cost_us=cost(ep, x, 4000) * 1e6)
    ep.close()
