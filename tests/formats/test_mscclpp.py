"""Plans as MSCCL++ execution plans: carried out by an interpreter, within the executor's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.cli import main as cli
from synth.collective import Collective
from synth.errors import PlanError
from synth.formats import mscclpp
from synth.plan import Chunks, Plan, Transfers, save
from synth.topology import catalog
from tests.formats import generated
from tests.formats.mscclpp_machine import UNITS, Machine, Value
from tests.golden import regenerate
from tests.plans import chain, direct_alltoall


def promised(plan: Plan, document: dict[str, Any], rank: int, unit: int) -> Value | None:
    """What a rank's output must hold; None where the collective promises nothing."""
    part, inside = divmod(unit, UNITS)
    gpu = document["gpus"][rank]
    ranks = range(len(plan.ranks))
    match plan.collective:
        case Collective.ALLGATHER:
            origin, place = divmod(part, gpu["input_chunks"])
            return ((origin, place, inside),)
        case Collective.ALLTOALL:
            block = gpu["input_chunks"] // len(plan.ranks)
            origin, place = divmod(part, block)
            return ((origin, rank * block + place, inside),)
        case Collective.BROADCAST:
            assert plan.root is not None
            return ((plan.root, part, inside),)
        case Collective.REDUCE_SCATTER:
            return tuple((peer, rank * gpu["output_chunks"] + part, inside) for peer in ranks)
        case Collective.REDUCE if rank != plan.root:
            return None
        case _:
            return tuple((peer, part, inside) for peer in ranks)


def assert_right(plan: Plan, document: dict[str, Any], seed: int) -> None:
    machine = Machine(document, seed)
    memory = machine.run()
    for gpu in document["gpus"]:
        for unit in range(gpu["output_chunks"] * UNITS):
            wanted = promised(plan, document, gpu["id"], unit)
            if wanted is not None:
                assert memory[machine.cell(gpu["id"], "o", unit)] == wanted


def to_document(plan: Plan, in_place: bool, threadblocks: int) -> dict[str, Any] | None:
    try:
        return mscclpp.to_document(plan, in_place=in_place, threadblocks=threadblocks)
    except PlanError:
        return None


@settings(max_examples=60, deadline=None)
@given(
    plan=generated.plans(),
    seed=st.integers(0, 99),
    threadblocks=st.sampled_from([1, 2, 3, 108]),
    in_place=st.booleans(),
    nodes=st.sampled_from([1, 2]),
)
def test_every_plan_is_carried_out(plan: Plan, seed: int, threadblocks: int, in_place: bool, nodes: int) -> None:
    plan = plan.with_(ranks=tuple(f"n{rank % nodes}/gpu{rank}" for rank in range(len(plan.ranks))))
    if in_place and plan.collective is Collective.ALLTOALL:
        return
    document = to_document(plan, in_place, threadblocks)
    if document is None:  # so few threadblocks are not enough
        assert threadblocks < 108
        return
    assert all(len(gpu["threadblocks"]) <= threadblocks for gpu in document["gpus"])
    assert_right(plan, document, seed)


def test_a_missing_signal_a_missing_nop_and_a_wrong_place_are_noticed() -> None:
    """The interpreter is worth something: each of these breaks it."""
    plan = chain(catalog.build("hgx-h100x1"), Collective.ALLREDUCE)

    def broken(change: str) -> dict[str, Any]:
        document = mscclpp.to_document(plan)
        ops = document["gpus"][3]["threadblocks"][0]["ops"]
        match change:
            case "signal":
                ops.remove(next(op for op in reversed(ops) if op["name"] == "signal"))
            case "nop":
                ops[:] = [op for op in ops if op["name"] != "nop"]
            case "place":
                next(op for op in ops if op["name"] == "re")["src_buff"][0]["type"] = "o"
        return document

    assert_right(plan, broken("nothing"), 0)
    for change in ("signal", "nop", "place"):
        with pytest.raises(AssertionError):
            assert_right(plan, broken(change), 0)


def test_chunks_are_dealt_out_until_the_limits_hold() -> None:
    plan = direct_alltoall(regenerate.machine(4))
    pairs, rounds = len(plan.chunks), 30
    many = plan.with_(
        denominator=rounds,
        chunks=Chunks(
            *(np.repeat(getattr(plan.chunks, name), rounds) for name in ("origin", "target")),
            np.ones(rounds * pairs, dtype=int),
        ),
        transfers=Transfers(
            (rounds * plan.transfers.chunk[:, None] + np.arange(rounds)).ravel(),
            *(np.repeat(getattr(plan.transfers, name), rounds) for name in ("src", "dst")),
            np.tile(np.arange(rounds), pairs),
            np.zeros(rounds * pairs, dtype=int),
        ).sorted(),
    )
    document = mscclpp.to_document(many)
    blocks = document["gpus"][0]["threadblocks"]
    assert len(blocks) > mscclpp.INSTANCES
    assert len(blocks) % mscclpp.INSTANCES == 0
    assert max(len(block["ops"]) for gpu in document["gpus"] for block in gpu["threadblocks"]) <= 64
    assert_right(many, document, 1)
    with pytest.raises(PlanError, match="at most 64 and 16"):
        mscclpp.to_document(many, threadblocks=1)


def test_limits_and_what_cannot_be_expressed() -> None:
    with pytest.raises(PlanError, match="channels"):
        mscclpp.to_document(direct_alltoall(catalog.build("hgx-h100x4")), threadblocks=1)
    plan = direct_alltoall(catalog.build("hgx-h100x1"))
    with pytest.raises(PlanError, match="uneven alltoall"):
        mscclpp.to_document(plan.with_(demand=np.arange(64.0).reshape(8, 8)))


def test_nodes_decide_the_channels() -> None:
    plan = direct_alltoall(catalog.build("hgx-h100x2"))
    gpu = mscclpp.to_document(plan)["gpus"][0]
    kinds = {entry["channel_type"]: set(entry["connected_to"]) for entry in gpu["channels"]}
    assert kinds == {"memory": set(range(1, 8)), "port": set(range(8, 16))}


def test_the_command_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = direct_alltoall(catalog.build("hgx-h100x1"))
    save(plan, tmp_path / "plan.json")
    words = ["export", str(tmp_path / "plan.json"), "--to", "mscclpp-json", "-o", str(tmp_path / "out.json")]
    assert cli.main(words) == 0
    assert "as mscclpp-json" in capsys.readouterr().out
    document = json.loads((tmp_path / "out.json").read_text())
    assert document == mscclpp.to_document(plan)
    assert document["max_message_size"] == 2**64 - 1
    assert_right(plan, document, 7)
