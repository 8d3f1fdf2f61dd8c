from dataclasses import replace

import numpy as np
import pytest

from synth.collective import Collective
from synth.plan import Certificate, Chunks, Plan, Symmetry, Transfers
from synth.topology import Topology, catalog
from synth.verifier import verify
from tests import plans

MACHINE = catalog.build("hgx-h100x1")


def edited(plan: Plan, **columns: np.ndarray) -> Plan:
    names = {name: columns.get(name, getattr(plan.transfers, name)) for name in Transfers.__slots__}
    return plan.with_(transfers=Transfers(**names))


def without(plan: Plan, position: int) -> Plan:
    return edited(plan, **{n: np.delete(getattr(plan.transfers, n), position) for n in Transfers.__slots__})


def rules(plan: Plan, machine: Topology | None = MACHINE) -> set[str]:
    return {violation.rule for violation in verify(plan, machine)}


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE, Collective.ALLREDUCE])
def test_chains_are_valid(collective: Collective) -> None:
    assert verify(plans.chain(MACHINE, collective), MACHINE) == ()


def test_the_direct_plan_is_valid() -> None:
    assert verify(plans.direct_alltoall(MACHINE, certificate=True), MACHINE) == ()


def test_a_missing_transfer_leaves_a_chunk_undelivered() -> None:
    broken = without(plans.direct_alltoall(MACHINE), 5)
    (violation,) = verify(broken, MACHINE)
    assert (violation.rule, violation.rank, violation.chunk) == ("not-delivered", 6, 5)


def test_all_violations_are_reported() -> None:
    broken = without(without(plans.direct_alltoall(MACHINE), 20), 5)
    assert [v.chunk for v in verify(broken, MACHINE)] == [5, 20]


def test_a_duplicate_is_received_twice() -> None:
    plan = plans.direct_alltoall(MACHINE)
    double = edited(plan, **{n: np.repeat(getattr(plan.transfers, n), [2] + [1] * 55) for n in Transfers.__slots__})
    (violation,) = verify(double, MACHINE)
    assert (violation.rule, violation.rank, violation.round) == ("received-twice", 1, 0)


def test_a_relay_must_have_the_data_one_round_earlier() -> None:
    plan = plans.chain(MACHINE, Collective.BROADCAST)
    early = edited(plan, round=np.array([0, 0, 2, 3, 4, 5, 6]))
    found = verify(early, MACHINE)
    assert [(v.rule, v.rank, v.round) for v in found] == [("send-before-data", 1, 0)]


def test_a_reduction_sent_too_early_loses_contributions() -> None:
    plan = plans.chain(MACHINE, Collective.REDUCE)
    moved = plan.transfers.round.copy()
    moved[3] = 0  # rank 4 sends before it has what 5, 6 and 7 gave
    broken = plan.with_(transfers=replace(plan.transfers, round=moved).sorted())
    assert rules(broken) == {"not-delivered"}
    assert "ranks 5, 6, 7" in verify(broken, MACHINE)[0].message


def test_a_contribution_added_twice_is_named() -> None:
    plan = plans.chain(MACHINE, Collective.ALLREDUCE)
    again = edited(plan, reduce=np.ones(len(plan.transfers), dtype=np.int64))
    assert "reduced-twice" in rules(again)


def test_copying_over_a_contribution_is_named() -> None:
    plan = plans.chain(MACHINE, Collective.REDUCE)
    assert "overwritten" in rules(edited(plan, reduce=np.zeros(len(plan.transfers), dtype=np.int64)))


def test_only_reductions_add() -> None:
    plan = plans.chain(MACHINE, Collective.BROADCAST)
    assert "reduce-flag" in rules(edited(plan, reduce=np.ones(len(plan.transfers), dtype=np.int64)))


def test_shares_must_sum_to_the_denominator() -> None:
    plan = plans.direct_alltoall(MACHINE)
    share = plan.chunks.share.copy()
    share[7] = 2
    (violation,) = verify(plan.with_(chunks=replace(plan.chunks, share=share)), MACHINE)
    assert (violation.rule, violation.chunk) == ("shares", 7)
    share[7] = 0
    assert rules(plan.with_(chunks=replace(plan.chunks, share=share))) == {"shares"}


def test_every_pair_needs_a_chunk_unless_it_has_no_bytes() -> None:
    plan = plans.direct_alltoall(MACHINE)
    keep = np.arange(len(plan.chunks)) != 3
    place = np.cumsum(keep) - 1
    kept = plan.transfers.chunk != 3
    transfers = Transfers(*(getattr(plan.transfers, n)[kept] for n in Transfers.__slots__))
    less = plan.with_(
        chunks=Chunks(*(getattr(plan.chunks, n)[keep] for n in Chunks.__slots__)),
        transfers=replace(transfers, chunk=place[transfers.chunk]),
    )
    assert [v.message for v in verify(less, MACHINE)] == ["block 0 -> 4 has no chunk"]
    sparse = np.ones((8, 8))
    sparse[0, 4] = 0
    assert verify(less.with_(demand=sparse), MACHINE) == ()


def test_chunks_must_belong_to_the_collective() -> None:
    plan = plans.direct_alltoall(MACHINE)
    assert "chunk-ends" in rules(plan.with_(chunks=replace(plan.chunks, target=np.full(56, -1))))


def test_transfers_must_be_sorted() -> None:
    plan = plans.direct_alltoall(MACHINE)
    order = np.arange(56)[::-1]
    assert rules(edited(plan, **{n: getattr(plan.transfers, n)[order] for n in Transfers.__slots__})) == {"order"}


def test_nobody_sends_to_itself() -> None:
    plan = plans.direct_alltoall(MACHINE)
    dst = plan.transfers.dst.copy()
    dst[0] = 0
    assert "self-send" in rules(edited(plan, dst=dst))


def test_transfers_need_routes_and_the_right_machine() -> None:
    cube = catalog.build("ndv2x1")
    plan = plans.direct_alltoall(MACHINE)
    found = verify(plan, cube)
    assert {v.rule for v in found} == {"topology", "route"}
    assert sum(v.rule == "route" for v in found) == 56 - 32
    assert rules(plan.with_(ranks=("x", *plan.ranks[1:]))) == {"ranks"}


def test_an_overstated_bound_is_refused() -> None:
    lengths = np.zeros(16)
    lengths[0] = 1.0  # gpu0's way out: 7/8 of 1000 bytes at 450 GB/s
    proven = 1000 * 7 / 8 / 450
    plan = plans.direct_alltoall(MACHINE).with_(certificate=Certificate("lengths", proven, lengths=lengths))
    assert verify(plan, MACHINE) == ()
    overstated = plan.with_(certificate=Certificate("lengths", proven * 1.01, lengths=lengths))
    assert rules(overstated) == {"bound"}
    assert rules(plan.with_(certificate=Certificate("lengths", 0.0, lengths=lengths[1:]))) == {"bound"}


def test_a_cut_proves_a_bound() -> None:
    proven = 1000 * 7 / 8 / 450
    plan = plans.direct_alltoall(MACHINE)
    cut = plan.with_(certificate=Certificate("cut", proven, devices=("n0/gpu0",)))
    assert verify(cut, MACHINE) == ()
    assert rules(plan.with_(certificate=Certificate("cut", proven * 1.01, devices=("n0/gpu0",)))) == {"bound"}
    assert rules(plan.with_(certificate=Certificate("cut", proven, devices=("n9/gpu0",)))) == {"bound"}


def test_symmetry_must_be_a_free_group_of_the_stated_order() -> None:
    plan = plans.direct_alltoall(MACHINE)
    turn = (1, 2, 3, 4, 5, 6, 7, 0)
    swap = (1, 0, 2, 3, 4, 5, 6, 7)
    assert rules(plan.with_(symmetry=Symmetry((turn,), 4))) == {"symmetry"}
    assert rules(plan.with_(symmetry=Symmetry((swap,), 2))) == {"symmetry"}


def test_a_size_given_by_the_caller_does_not_replace_the_stated_one() -> None:
    lengths = np.zeros(16)
    lengths[0] = 1.0
    proven = 1000 * 7 / 8 / 450
    plan = plans.direct_alltoall(MACHINE).with_(certificate=Certificate("lengths", proven * 2, lengths=lengths))
    assert {violation.rule for violation in verify(plan, MACHINE, bytes=1_000_000)} == {"bound"}
