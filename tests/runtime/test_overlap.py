"""Outputs over inputs: right for every operation and place, and without a copy where the schedule allows it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.attach import attach
from runtime.direct import direct_plan
from runtime.overlap import in_place, native_in_place, shift_of
from synth import plan as plans
from synth.collective import Collective, Demand
from synth.errors import InvalidArgument
from synth.plan.lowering import lower
from synth.topology import catalog

SIZE, ROWS = 4, 24


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_CACHE", "SYNTH_TRIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")


def solved(collective, folder):
    portfolio = pytest.importorskip("solver.portfolio")
    machine = catalog.build("ring4") if "ring4" in catalog.names() else catalog.build("asym8")
    ranks = len(machine.gpus)
    demand = Demand(collective=collective, ranks=ranks, bytes=64_000_000, root=1 if collective.rooted else None)
    plan = portfolio.solve(machine, demand, seed=1).plan
    plans.save(plan, folder / f"{collective.value}.json")
    return str(folder / f"{collective.value}.json"), ranks


CALLS = {
    "allreduce": lambda ep, x: ep.all_reduce(x, out=x),
    "broadcast": lambda ep, x: ep.broadcast(x, root=1, out=x),
    "reduce": lambda ep, x: ep.reduce(x, root=1, out=x),
    "reduce_scatter": lambda ep, x: ep.reduce_scatter(x, out=np.split(x, ep.size)[ep.rank]),
    "allgather": lambda ep, x: ep.all_gather(np.split(x, ep.size)[ep.rank], out=x),
    "alltoall": lambda ep, x: ep.all_to_all(x, out=x)[0],
}
APART = {
    "allreduce": lambda ep, x: ep.all_reduce(x),
    "broadcast": lambda ep, x: ep.broadcast(x, root=1),
    "reduce": lambda ep, x: ep.reduce(x, root=1),
    "reduce_scatter": lambda ep, x: ep.reduce_scatter(x),
    "allgather": lambda ep, x: ep.all_gather(np.split(x, ep.size)[ep.rank]),
    "alltoall": lambda ep, x: ep.all_to_all(x)[0],
}


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("trial", ["auto", "off"])
def test_in_place_equals_apart(in_threads, tmp_path, monkeypatch, name, trial):
    """With a solved plan that relays, in a trial that runs a call many times, and with the direct exchange."""
    file, size = solved(Collective(name), tmp_path)

    def rank(communicator):
        results = []
        for path in ("", file):
            monkeypatch.setenv("SYNTH_PLAN_FILE", path)
            monkeypatch.setenv("SYNTH_TRIAL", trial)
            ep = attach(communicator=communicator, collectives=[])
            if name not in ("broadcast", "reduce"):
                ep.prepare(name)
            x = np.random.default_rng(ep.rank).integers(0, 100, (size * 6, 3)).astype(np.float32)
            right = APART[name](ep, x.copy())
            for _ in range(2):
                found = CALLS[name](ep, x.copy())
                results.append(right is found or np.array_equal(found, right))
            communicator.gather(b"done")
        return results

    assert in_threads(size, rank) == [[True] * 4] * size


def test_direct_schedules_need_no_copy_where_nccl_needs_none():
    for rank in range(SIZE):
        part = ROWS // SIZE
        for collective, counts, shift in (
            (Collective.ALLREDUCE, ROWS, 0),
            (Collective.BROADCAST, ROWS, 0),
            (Collective.REDUCE, ROWS, 0),
            (Collective.REDUCE_SCATTER, np.full(SIZE, part), rank * part),
            (Collective.ALLGATHER, np.full(SIZE, part), -rank * part),
        ):
            program = lower(direct_plan(collective, SIZE), counts, rank)
            fitting = in_place(program, shift)
            assert fitting is not None, (collective, rank)
            assert len(fitting.local) == 0
            assert native_in_place(collective, rank, part, shift)
    program = lower(direct_plan(Collective.ALLTOALL, SIZE), np.full((SIZE, SIZE), 3), 1)
    assert in_place(program, 0) is None


@given(
    shift=st.integers(-30, 30),
    seed=st.integers(0, 100),
    name=st.sampled_from(["allreduce", "allgather", "reduce_scatter"]),
)
@settings(max_examples=40, deadline=None)
def test_a_program_that_is_kept_never_reads_what_it_wrote(shift, seed, name):
    """Run it on one buffer and on two: what is sent and written must be the same."""
    from runtime.buffers import HostMemory
    from runtime.elements import Element, Reduction
    from runtime.executor import execute

    rng = np.random.default_rng(seed)
    rank = int(rng.integers(SIZE))
    counts = rng.integers(0, 9, SIZE) if name != "allreduce" else int(rng.integers(1, 40))
    program = lower(direct_plan(Collective(name), SIZE), counts, rank)
    if program.inputs == 0 or program.outputs == 0:
        return
    fitting = in_place(program, shift)
    if fitting is None:
        return
    whole = rng.integers(0, 50, 200).astype(np.int8).view(np.uint8)
    begin = 80

    class Alone:
        def __init__(self):
            self.memory, self.sent = HostMemory(), []

        def group(self, sends, receives, buffers, round):
            self.sent += [buffers.region(m.buffer, m.offset, m.length).tobytes() for m in sends]
            for m in receives:
                drawn = np.random.default_rng(m.peer + 10 * round).integers(0, 9, m.length, dtype=np.uint8)
                buffers.region(m.buffer, m.offset, m.length)[:] = drawn

    one, two, element = Alone(), Alone(), Element("int8", 1)
    apart = np.zeros(program.outputs, dtype=np.uint8)
    execute(one, program, whole[begin : begin + program.inputs].copy(), apart, element, Reduction.SUM)
    target = whole[begin + shift : begin + shift + program.outputs]
    execute(two, fitting, whole[begin : begin + program.inputs], target, element, Reduction.SUM)
    assert one.sent == two.sent
    np.testing.assert_array_equal(apart, target)


def test_arrays_that_share_memory_are_told_apart():
    x = np.zeros(100, dtype=np.uint8)
    assert shift_of(x[10:20], x[10:20]) == 0
    assert shift_of(x[10:20], x[15:40]) == 5
    assert shift_of(x[10:20], x[:11]) == -10
    assert shift_of(x[10:20], x[20:30]) is None
    assert shift_of(x[10:10], x) is None


def test_an_output_that_does_not_fit_is_refused(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.ones(4, dtype=np.float32)
        for out in (np.ones(3, dtype=np.float32), np.ones(4)):
            with pytest.raises(InvalidArgument, match="out: is float"):
                ep.all_reduce(x, out=out)
        out = np.empty(4, dtype=np.float32)
        assert ep.all_reduce(x, out=out) is out
        assert ep.reduce(x, root=0, out=out if ep.rank == 0 else None) is (out if ep.rank == 0 else None)
        recv, _ = ep.send_recv([(0, 1)], x if ep.rank == 0 else x[:0], out=out if ep.rank == 1 else out[:0])
        return recv.tolist()

    assert in_threads(2, rank) == [[], [1.0] * 4]
