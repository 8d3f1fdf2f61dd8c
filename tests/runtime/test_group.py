"""Every operation of a group, its errors and its statistics, with ranks as threads."""

import time

import numpy as np
import pytest

from runtime.attach import attach
from runtime.direct import direct_plan
from synth import plan as plans
from synth.client import Found
from synth.collective import Collective
from synth.errors import InvalidArgument, InvalidUsage, RemoteError, UnmatchedGroup


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_FALLBACK", "SYNTH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")
    monkeypatch.setenv("SYNTH_TRIAL", "off")  # a plan that fits is used; test_choice.py has the trials


def test_all_to_all_with_counts(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        counts = [(ep.rank + peer) % 3 for peer in range(ep.size)]
        send = np.arange(2 * sum(counts), dtype=np.int32).reshape(-1, 2) + 1000 * ep.rank
        return ep.rank, send, counts, *ep.all_to_all(send, counts)

    results = in_threads(4, rank)
    for me, _, _, recv, recv_counts in results:
        parts = []
        for other, send, counts, _, _ in results:
            begin = sum(counts[:me])
            parts.append(send[begin : begin + counts[me]])
            assert recv_counts[other] == counts[me]
        np.testing.assert_array_equal(recv, np.concatenate(parts))


def test_the_other_operations(in_threads):
    def rank(communicator):
        with attach(communicator=communicator) as ep:
            x = np.arange(6, dtype=np.float32) + ep.rank
            np.testing.assert_array_equal(ep.all_gather(x), np.concatenate([np.arange(6) + r for r in range(3)]))
            np.testing.assert_array_equal(ep.all_reduce(x), 3 * np.arange(6) + 3)
            np.testing.assert_array_equal(ep.all_reduce(x, op="max"), np.arange(6) + 2)
            np.testing.assert_array_equal(ep.reduce_scatter(x), 3 * np.arange(2 * ep.rank, 2 * ep.rank + 2) + 3)
            np.testing.assert_array_equal(ep.broadcast(x, root=2), np.arange(6) + 2)
            reduced = ep.reduce(x, root=1)
            assert (reduced is None) == (ep.rank != 1)
            recv, counts = ep.send_recv([(0, 1), (2, 1)], x if ep.rank != 1 else x[:0])
            assert counts.tolist() == ([6, 0, 6] if ep.rank == 1 else [0, 0, 0])
            assert len(recv) == counts.sum()
            handles = [ep.all_reduce(x, wait=False) for _ in range(3)]
            np.testing.assert_array_equal(ep.all_reduce(x), handles[2].wait())
            ep.health_check()
            return True

    assert in_threads(3, rank) == [True] * 3


def test_invalid_arguments_reach_every_rank_and_leave_the_group_usable(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.ones(4, dtype=np.float32)
        bad = [-1, 5] if ep.rank == 0 else [2, 2]
        with pytest.raises(InvalidArgument, match="negative" if ep.rank == 0 else "rank 0 passed"):
            ep.all_to_all(x, bad)
        for wrong in (np.ones((4, 4))[:, ::2], np.array(["a", None], dtype=object), [1.0, 2.0], np.float32(3)):
            with pytest.raises(InvalidArgument):
                ep.all_reduce(wrong)
        with pytest.raises(InvalidArgument, match="op"):
            ep.all_reduce(x, op="xor")
        with pytest.raises(InvalidArgument, match="root"):
            ep.broadcast(x, root=2)
        with pytest.raises(InvalidArgument, match="cannot be reduced"):
            ep.all_reduce(np.ones(2, dtype=complex))
        with pytest.raises(InvalidArgument, match="equal parts"):
            ep.reduce_scatter(np.ones(3))
        return ep.all_reduce(x)[0]

    assert in_threads(2, rank) == [2.0, 2.0]


def test_a_closed_group_says_so(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.close()
        assert not ep.is_valid()
        with pytest.raises(InvalidUsage, match="attach"):
            ep.all_reduce(np.ones(2))

    in_threads(2, rank)


def test_a_silent_rank_is_named_and_nobody_hangs(in_threads):
    def rank(communicator):
        ep = attach(communicator=communicator)
        if ep.rank == 2:
            return None
        with pytest.raises(RemoteError, match="rank 2") as error:
            ep.all_reduce(np.ones(4))
        assert error.value.rank == 2
        assert not ep.is_valid()
        return True

    assert in_threads(4, rank, deadline=0.5) == [True, True, None, True]


@pytest.fixture
def plan_file(tmp_path, monkeypatch):
    def write(*made):
        paths = []
        for number, plan in enumerate(made):
            paths.append(str(tmp_path / f"plan{number}.json"))
            plans.save(plan, paths[-1])
        monkeypatch.setenv("SYNTH_PLAN_FILE", ":".join(paths))
        return paths

    return write


def test_a_plan_file_is_used_and_counted(in_threads, plan_file):
    plan = direct_plan(Collective.ALLTOALL, 3)
    plan_file(plan)

    def rank(communicator):
        ep = attach(communicator=communicator, collectives=["alltoall"])
        ep.all_to_all(np.ones(6, dtype=np.int8))
        ep.all_reduce(np.ones(6, dtype=np.int32))
        return ep.stats()

    stats = in_threads(3, rank)[0]
    assert ("alltoall", f"plan {plan.digest[:12]}") in stats.operations
    assert ("allreduce", "direct") in stats.operations
    assert stats.edges[1].bytes == 2 + 8 + 8
    assert "from file" in stats.reasons["alltoall"]
    assert stats.reasons["allreduce"].startswith("no plan")
    assert "synth_edge_bytes_total" in stats.prometheus()
    assert plan.digest[:12] in stats.text()


def test_a_plan_outside_its_sizes_is_not_used(in_threads, plan_file):
    plan_file(direct_plan(Collective.ALLTOALL, 2).with_(min_bytes=100))

    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.all_to_all(np.ones(6, dtype=np.int8))
        return ep.stats()

    stats = in_threads(2, rank)[0]
    assert list(stats.operations) == [("alltoall", "direct")]
    assert stats.fallbacks == 1


def test_an_invalid_plan_is_refused(in_threads, plan_file):
    plan = direct_plan(Collective.ALLTOALL, 2)
    plan_file(plan.with_(denominator=2))

    def rank(communicator):
        return attach(communicator=communicator).prepare("alltoall")

    assert "not valid" in in_threads(2, rank)[0]


@pytest.mark.parametrize("strict", [False, True])
def test_ranks_with_different_plans(in_threads, tmp_path, monkeypatch, strict):
    """Nobody runs a plan that another rank does not have: all fall back, or all are told."""
    made = [direct_plan(Collective.ALLTOALL, 3).with_(solver={"seed": seed}) for seed in (1, 2)]
    monkeypatch.setattr("runtime.plans.find", lambda source, operation, size: Found(made[source.bytes], "file", "plan"))
    if strict:
        monkeypatch.setenv("SYNTH_FALLBACK", "error")

    def rank(communicator):
        ep = attach(communicator=communicator, bytes=int(communicator.rank == 2))
        if strict:
            with pytest.raises(UnmatchedGroup, match="rank 2 has"):
                ep.all_to_all(np.ones(3))
            return ep.is_valid()
        ep.all_to_all(np.ones(3))
        return list(ep.stats().operations)

    assert in_threads(3, rank) == [True if strict else [("alltoall", "direct")]] * 3


def test_half_types_are_added_in_float32(in_threads):
    """1 + 1/256 + 1/256: bfloat16 additions would lose both small parts, float32 keeps them."""
    bits = [0x3F80, 0x3B80, 0x3B80]

    def rank(communicator):
        from runtime.elements import Element, Reduction
        from runtime.executor import execute
        from synth.plan.lowering import lower

        element = Element("bfloat16", 2)
        source = np.array([bits[communicator.rank]], dtype=np.uint16).view(np.uint8)
        target = np.zeros(2, dtype=np.uint8)
        program = lower(direct_plan(Collective.REDUCE, 3), 1, communicator.rank)
        execute(communicator, program, source, target[: 2 * program.outputs], element, Reduction.SUM)
        return int(target.view(np.uint16)[0])

    assert in_threads(3, rank)[0] == 0x3F81


def test_a_server_that_hangs_costs_its_timeout_once(in_threads, monkeypatch):
    """Rank 0 asks alone, longer than the deadline; the others wait for it and start all the same."""
    asked = []

    def slow(source, operation, size):
        asked.append(1)
        time.sleep(1.0)
        return Found(None, "none", "no plan: the server hangs")

    monkeypatch.setattr("runtime.plans.find", slow)
    monkeypatch.setenv("SYNTH_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("SYNTH_TIMEOUT", "5")

    def rank(communicator):
        ep = attach(communicator=communicator)
        assert ep.all_reduce(np.ones(1))[0] == 3
        return communicator.deadline

    assert in_threads(3, rank, deadline=0.4) == [0.4] * 3
    assert len(asked) == 1


def test_a_trial_keeps_the_fastest_on_all_ranks(in_threads, plan_file):
    plan_file(direct_plan(Collective.ALLTOALL, 3))

    def rank(communicator):
        ep = attach(communicator=communicator)
        x = np.ones((6, 100), dtype=np.float32)
        seconds = ep.trial("alltoall", x, repeat=2)
        for collective in ("allgather", "reduce_scatter", "allreduce"):
            ep.trial(collective, x, repeat=1)
        before = {key: entry.calls for key, entry in ep.stats().operations.items()}
        ep.all_to_all(x)
        ran = [key[1] for key, entry in ep.stats().operations.items() if entry.calls != before.get(key)]
        return min(seconds, key=seconds.get), ran, ep.stats().reasons["alltoall"]

    results = in_threads(3, rank)
    best, ran, reason = results[0]
    assert all(result[:2] == (best, ran) for result in results)
    assert len(ran) == 1
    assert ran[0].startswith("plan" if best == "plan" else "direct")  # threads have no native collective
    assert f"{best} is used" in reason


def test_a_group_knows_its_ranks_nodes(in_threads):
    devices = ["n1/gpu0", "n0/gpu3", "n1/gpu5"]
    known = in_threads(3, lambda one: attach(communicator=one, topology="hgx-h100x2", ranks=devices).nodes)
    assert known == [(0, 1, 0)] * 3
    assert in_threads(2, lambda one: attach(communicator=one).nodes) == [(0, 0)] * 2
