"""Parts of a communicator: the contract on every transport, and which link classes a plan has."""

import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from runtime.communicators.library import IN_PROGRESS, READY
from runtime.direct import direct_plan
from runtime.link_classes import by_class, classes_of, connected
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InputError, RemoteError
from synth.topology import catalog
from tests.runtime.split_contract import check_split


def test_threads(in_threads):
    assert in_threads(5, check_split) == [None] * 5


@pytest.mark.mpi
def test_mpi(mpiexec, tmp_path):
    machine = catalog.build("asym8")
    plan = direct_plan(Collective.ALLTOALL, 8).with_(ranks=machine.gpus, topology=machine.fingerprint)
    plans.save(plan, tmp_path / "plan.json")
    done = mpiexec(8, "mpi_split.py", SYNTH_PLAN_FILE=str(tmp_path / "plan.json"), SYNTH_TOPOLOGY="asym8")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("right: ") == 8
    kinds = {kind.value for kind in classes_of(plan, machine).values()}
    if len(kinds) > 1:
        assert done.stdout.count(f"a communicator each for {' and '.join(sorted(kinds))}") == 8


def test_a_silent_rank_of_a_part_is_named_as_the_whole_does(in_threads):
    def rank(communicator):
        part = communicator.split(communicator.rank // 2)
        if communicator.rank == 3:
            return None
        if communicator.rank < 2:
            time.sleep(1.0)  # until the other part has failed
        with pytest.raises(RemoteError, match="rank 3") as error:
            part.gather(b"x")
        return error.value.rank, part.is_valid(), communicator.is_valid()

    assert in_threads(4, rank, deadline=0.5) == [(3, False, False)] * 3 + [None]


def test_classes_of_edges():
    machine = catalog.build("hgx-h100x2")
    plan = direct_plan(Collective.ALLTOALL, 16)
    found = classes_of(plan, machine)
    assert {found[0, peer].value for peer in range(1, 8)} == {"nvlink"}
    assert {found[0, peer].value for peer in range(8, 16)} == {"network"}
    assert all(found[a, b] is found[b, a] for a, b in found)
    assert classes_of(direct_plan(Collective.ALLTOALL, 17), machine) == {}
    assert connected(6, [(0, 1), (4, 1), (3, 5)]) == [[0, 1, 4], [3, 5]]


def test_ranks_that_see_other_classes_all_use_one_communicator(in_threads):
    machines = [catalog.build("hgx-h100x2"), None]
    plan = direct_plan(Collective.ALLTOALL, 16)

    def rank(communicator):
        machine = machines[communicator.rank == 3]
        return by_class(communicator, plan, machine, (), {"SYNTH_LINK_CLASSES": "on"})

    assert in_threads(16, rank) == [None] * 16
    with pytest.raises(InputError, match="must be off or on"):
        by_class(None, plan, None, (), {"SYNTH_LINK_CLASSES": "perhaps"})


@pytest.fixture
def binding(monkeypatch):
    """nccl4py's modules, with what it answers under the test's control."""
    raw, core, called = ModuleType("nccl.bindings.nccl"), ModuleType("nccl.core"), []
    states = {1: [READY], 2: [READY]}
    raw.Comm = lambda pointer: pointer
    raw.comm_get_async_error = lambda comm: states[comm].pop(0) if len(states[comm]) > 1 else states[comm][0]
    raw.get_version = lambda: 22900
    raw.comm_register = lambda comm, pointer, size: called.append(("register", comm, pointer, size)) or 77
    raw.comm_deregister = lambda comm, handle: called.append(("deregister", comm, handle))
    raw.mem_alloc, raw.mem_free = lambda size: 4096, lambda pointer: called.append(("free", pointer))

    class Communicator:
        def __init__(self, ptr):
            self.ptr = ptr

        @classmethod
        def init(cls, size, rank, unique_id, config):
            assert config.blocking is False
            return cls(1)

        def split(self, color, key):
            called.append(("split", color, key))
            self.child = Communicator(0)  # NCCL writes the address later
            return self.child

        def abort(self):
            called.append(("abort", self.ptr))

    core.Communicator, core.NCCLConfig = Communicator, lambda blocking: SimpleNamespace(blocking=blocking)
    core.UniqueId = SimpleNamespace(from_bytes=bytes)
    monkeypatch.setitem(sys.modules, "nccl.core", core)
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", raw)
    from runtime.communicators.nccl4py import Nccl4py

    made = Nccl4py()
    made.connect(4, 2, b"id")
    return made, states, called


def test_nccl4py_splits_without_waiting(binding):
    whole, states, called = binding
    part = whole.split(3, 2)
    states[1] = [IN_PROGRESS, IN_PROGRESS, READY]
    assert [part.state(), part.state()] == [IN_PROGRESS] * 2
    whole._owner.child.ptr, states[2] = 2, [IN_PROGRESS, READY]
    assert [part.state(), part.state()] == [IN_PROGRESS, READY]
    assert whole.split(None, 2) is None
    part.abort()
    assert called == [("split", 3, 2), ("split", None, 2), ("abort", 2)]
    assert whole.state() == READY


def test_nccl4py_registers_with_the_communicator(binding):
    whole, _, called = binding
    assert whole.register(whole.allocate(64), 64) == 77
    whole.deregister(77)
    whole.free(4096)
    assert called == [("register", 1, 4096, 64), ("deregister", 1, 77), ("free", 4096)]
    assert whole.version() == 22900


def test_cupy_splits_and_registers_nothing(monkeypatch):
    module = ModuleType("cupy.cuda.nccl")
    split = []
    module.NcclCommunicator = lambda size, unique_id, rank: SimpleNamespace(
        commSplit=lambda color, key: split.append((color, key)) or SimpleNamespace(check_async_error=lambda: None)
    )
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", module)
    from runtime.communicators.nccl_cupy import CupyNccl

    whole = CupyNccl()
    whole.connect(4, 1, b"id")
    assert whole.split(5, 1).state() == READY
    assert whole.split(None, 1) is None
    assert split == [(5, 1), (-1, 1)]
    assert whole.allocate(8) == 0
    assert whole.register(1, 8) is None


def test_a_plan_by_class_over_threads(in_threads, tmp_path, monkeypatch):
    from runtime.attach import attach

    machine = catalog.build("hgx-h100x2")
    plan = direct_plan(Collective.ALLTOALL, 16).with_(ranks=machine.gpus, topology=machine.fingerprint)
    plans.save(plan, tmp_path / "plan.json")
    for name, value in (("PLAN_FILE", str(tmp_path / "plan.json")), ("TOPOLOGY", "hgx-h100x2"), ("LINK_CLASSES", "on")):
        monkeypatch.setenv(f"SYNTH_{name}", value)
    monkeypatch.setenv("SYNTH_QUIET", "1")
    monkeypatch.setenv("SYNTH_TRIAL", "off")
    monkeypatch.delenv("SYNTH_SERVER", raising=False)

    def rank(communicator):
        ep = attach(communicator=communicator)
        recv, _ = ep.all_to_all(np.arange(32) + 100 * ep.rank)
        right = np.concatenate([np.arange(2 * ep.rank, 2 * ep.rank + 2) + 100 * origin for origin in range(16)])
        return bool((recv == right).all()), ep.stats().reasons["alltoall"].rpartition(", ")[2]

    assert in_threads(16, rank) == [(True, "a communicator each for network and nvlink")] * 16
