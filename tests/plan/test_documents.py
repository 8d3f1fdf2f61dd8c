import json
from typing import Any

import numpy as np
import pytest

from synth import plan as plans
from synth.collective import Collective
from synth.errors import DemandError, DocumentError, InputError, TopologyError
from synth.plan.rehome import rehome
from synth.topology import catalog
from synth.verifier import verify
from tests.plans import chain, direct_alltoall
from tests.topology.test_fingerprint import relabel

MACHINE = catalog.build("hgx-h100x1")


def document() -> dict[str, Any]:
    return json.loads(direct_alltoall(MACHINE, certificate=True).with_(demand=np.ones((8, 8))).text)


def test_round_trip_keeps_the_digest() -> None:
    for plan in (direct_alltoall(MACHINE, certificate=True), chain(MACHINE, Collective.REDUCE)):
        again = plans.from_document(json.loads(plan.text))
        assert again.digest == plan.digest
        assert len(plan.digest) == 64


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "synth-plan/2", "reads synth-plan/1"),
        (["format"], None, "must be a string"),
        (["collective"], "alltonone", "must be one of alltoall"),
        (["ranks"], [], "at least one"),
        (["ranks", 1], "n0/gpu0", "names a device twice"),
        (["segments"], 0, "from 1"),
        (["denominator"], 1.5, "must be an integer"),
        (["chunks", "share"], [1], "differ in length"),
        (["chunks", "origin", 3], 8, "from -1 to 7"),
        (["transfers", "dst", 3], 8, "from 0 to 7"),
        (["transfers", "dst", 3], -1, "from 0 to 7"),
        (["transfers", "chunk", 3], 56, "from 0 to 55"),
        (["transfers", "round", 3], 2**40, "from 0 to"),
        (["transfers", "round", 3], "1", "must be an integer"),
        (["transfers"], [], "must be an object"),
        (["certificate", "kind"], "faith", "lengths or cut"),
        (["certificate", "lengths", 2], -1, "at least 0"),
        (["certificate", "bound_ns"], -1, "at least 0"),
        (["demand", "bytes", 2], [1], "row of 8"),
        (["demand", "bytes", 2, 3], -4, "at least 0"),
        (["helpers"], 8, "from 0 to 7"),
        (["symmetry"], {"generators": [[0, 0, 1, 2, 3, 4, 5, 6]], "order": 2}, "permutation"),
        (["predicted", "seconds"], [], "0 times for 1 sizes"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, message: str) -> None:
    made: Any = document()
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(InputError, match=message):
        plans.from_document(made)


def test_rooted_collectives_need_their_root() -> None:
    made = json.loads(chain(MACHINE, Collective.REDUCE).text)
    del made["root"]
    with pytest.raises(DocumentError, match="reduce needs one"):
        plans.from_document(made)


def test_slices_hold_the_whole_blocks_of_their_chunks() -> None:
    plan = direct_alltoall(MACHINE)
    part, rank, digest = plans.load_slice(plans.slice_plan(plan, 3))
    assert (rank, digest) == (3, plan.digest)
    assert len(part.transfers) == 14
    assert set(part.chunks.origin.tolist()) == set(range(8))
    with pytest.raises(DemandError, match="ranks 0 to 7"):
        plans.slice_plan(plan, 8)


def test_a_changed_slice_is_refused() -> None:
    made = plans.slice_plan(direct_alltoall(MACHINE), 3)
    made["transfers"]["dst"][0] = 5
    with pytest.raises(DocumentError, match="digest"):
        plans.load_slice(made)


def test_symmetric_plans_expand_to_what_they_stand_for() -> None:
    turn = tuple((rank + 1) % 8 for rank in range(8))
    src, dst = np.zeros(7, dtype=np.int64), np.arange(1, 8)
    plan = direct_alltoall(MACHINE)
    small = plan.with_(
        chunks=plans.Chunks(src, dst, np.ones(7, dtype=np.int64)),
        transfers=plans.Transfers(np.arange(7), src, dst, src, src),
        symmetry=plans.Symmetry((turn,), 8),
    )
    whole = plans.expand(small)
    assert len(whole.chunks) == len(whole.transfers) == 56
    assert verify(small, MACHINE) == verify(whole, MACHINE) == ()
    assert plans.slice_plan(small, 5)["plan"] == small.digest


def test_a_plan_moves_to_a_relabelled_machine() -> None:
    machine = catalog.build("asym8")
    other = relabel(machine, 7)
    plan = direct_alltoall(machine, certificate=True)
    lengths = np.arange(len(machine.links), dtype=float)
    plan = plan.with_(certificate=plans.Certificate("lengths", 0.0, lengths=lengths))
    moved = rehome(plan, machine, other)
    assert verify(moved, other) == ()
    assert rehome(moved, other, machine).ranks == plan.ranks
    with pytest.raises(TopologyError, match="the plan is for"):
        rehome(plan, machine, MACHINE)
