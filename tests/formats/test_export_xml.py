"""Plans as MSCCL XML: the verifier accepts what is written, limits are told, golden files stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from synth.cli import main as cli
from synth.collective import Collective
from synth.errors import PlanError
from synth.formats import msccl_xml, mscclpp
from synth.formats.msccl_xml import Algorithm, Dialect
from synth.formats.msccl_xml.schedule import Program, run
from synth.plan import Chunks, Plan, Transfers, save
from synth.topology import catalog
from synth.verifier import verify
from tests.formats import generated
from tests.golden import regenerate
from tests.plans import chain, columns, direct_alltoall
from tests.verifier import vectors

MACHINE = catalog.build("hgx-h100x1")


def without_lines(algorithm: Algorithm) -> Algorithm:
    return replace(
        algorithm,
        gpus=tuple(
            replace(
                gpu,
                line=0,
                threadblocks=tuple(
                    replace(block, line=0, steps=tuple(replace(step, line=0, round=None) for step in block.steps))
                    for block in gpu.threadblocks
                ),
            )
            for gpu in algorithm.gpus
        ),
    )


@settings(max_examples=40, deadline=None)
@given(plan=generated.plans())
def test_every_plan_becomes_a_right_program(plan: Plan) -> None:
    assert verify(plan) == ()
    for dialect in Dialect:
        for in_place in (False, True):
            if in_place and plan.collective is Collective.ALLTOALL:
                continue
            algorithm = msccl_xml.from_plan(plan, dialect, in_place=in_place)
            text = msccl_xml.dumps(algorithm)
            read = msccl_xml.parse(text)
            assert without_lines(read) == without_lines(algorithm)
            report = msccl_xml.verify(read, dialect)
            assert (report.violations, report.warnings) == ((), ())
            program = Program(read)
            order, stuck = run(program, program.slots)
            assert not stuck
            assert len(order) == sum(max(s.count, 1) for lane in program.lanes for s in lane.block.steps)


@settings(max_examples=30, deadline=None)
@given(plan=generated.plans())
def test_a_program_moves_what_the_plan_moves(plan: Plan) -> None:
    algorithm = msccl_xml.from_plan(plan)
    unit = algorithm.chunks_per_loop / (
        1 if plan.collective in (Collective.ALLREDUCE, Collective.BROADCAST, Collective.REDUCE) else len(plan.ranks)
    )
    sent = np.zeros((len(plan.ranks), len(plan.ranks)))
    for gpu in algorithm.gpus:
        for block in gpu.threadblocks:
            sent[gpu.id, block.send] += sum(step.count for step in block.steps if step.kind.sends) / unit
    wanted = np.zeros_like(sent)
    shares = plan.chunks.share[plan.transfers.chunk] / plan.denominator
    np.add.at(wanted, (plan.transfers.src, plan.transfers.dst), shares)
    assert np.allclose(sent, wanted)


def test_neighbours_in_memory_travel_as_one_message() -> None:
    plan = regenerate.plans()["alltoall"]
    halves = plan.with_(
        denominator=2,
        chunks=type(plan.chunks)(*(np.repeat(getattr(plan.chunks, name), 2) for name in plan.chunks.__slots__)),
        transfers=type(plan.transfers)(
            np.stack([2 * plan.transfers.chunk, 2 * plan.transfers.chunk + 1], axis=1).ravel(),
            *(np.repeat(getattr(plan.transfers, name), 2) for name in plan.transfers.__slots__[1:]),
        ),
    )
    assert verify(halves) == ()
    algorithm = msccl_xml.from_plan(halves)
    assert algorithm.steps == msccl_xml.from_plan(plan).steps
    assert {step.count for gpu in algorithm.gpus for block in gpu.threadblocks for step in block.steps} == {2}


def ring(collective: Collective, ranks: int, shares: tuple[int, ...] = (1,)) -> Plan:
    """Allgather or allreduce around a ring, each block in parts of these shares."""
    adds = collective is Collective.ALLREDUCE
    chunks: list[tuple[int, int, int]] = []
    hops: list[tuple[int, int, int, int, int]] = []
    for begin in range(ranks):
        for share in shares:
            for place in range(2 * (ranks - 1) if adds else ranks - 1):
                src = (begin + place) % ranks
                hops.append((len(chunks), src, (src + 1) % ranks, place, int(adds and place < ranks - 1)))
            chunks.append((-1 if adds else begin, -1, share))
    return Plan(
        collective=collective,
        ranks=regenerate.machine(ranks).gpus,
        topology="",
        segments=1,
        denominator=sum(shares) * (ranks if adds else 1),
        chunks=Chunks(*columns(*zip(*chunks, strict=True))),
        transfers=Transfers(*columns(*zip(*hops, strict=True))).sorted(),
    )


def kinds(algorithm: Algorithm) -> list[str]:
    return [step.kind.value for block in algorithm.gpus[0].threadblocks for step in block.steps]


def test_rings_pass_on_what_arrives_in_one_threadblock() -> None:
    around = msccl_xml.from_plan(ring(Collective.ALLREDUCE, 4))
    assert kinds(around) == ["s", "rrcs", "rrcs", "rrcs", "rcs", "rcs", "r"]
    assert kinds(msccl_xml.from_plan(ring(Collective.ALLGATHER, 4), in_place=True)) == ["s", "rcs", "rcs", "r"]
    assert msccl_xml.verify(around).warnings == ()


def test_what_would_hang_in_one_threadblock_stays_in_two() -> None:
    """Four chunks do not fit a connection that holds two, so in a ring all would send and nobody receive."""
    algorithm = msccl_xml.from_plan(ring(Collective.ALLGATHER, 4, (1, 3)), in_place=True)
    assert set(kinds(algorithm)) <= {"s", "r", "nop"}
    assert run(Program(algorithm), 1)[1] == []


def test_long_threadblocks_are_spread_over_channels() -> None:
    plan = chain(regenerate.machine(3), Collective.BROADCAST, segments=1)
    parts = 20_000
    algorithm = msccl_xml.from_plan(
        plan.with_(
            denominator=parts,
            chunks=type(plan.chunks)(*(np.array([end] * 2) for end in (0, -1)), np.array([1, parts - 1])),
            transfers=type(plan.transfers)(
                np.repeat([0, 1], len(plan.transfers)),
                *(np.tile(getattr(plan.transfers, name), 2) for name in plan.transfers.__slots__[1:]),
            ).sorted(),
        ),
        Dialect.V1,
    )
    assert algorithm.channels > 1
    assert max(len(block.steps) for gpu in algorithm.gpus for block in gpu.threadblocks) <= 256


def test_what_cannot_be_expressed_is_said_in_one_sentence() -> None:
    exchange = direct_alltoall(MACHINE)
    uneven = np.arange(64.0).reshape(8, 8)
    for plan, options, message in [
        (exchange.with_(demand=uneven), {}, "uneven alltoall"),
        (exchange, {"in_place": True}, "would overwrite"),
        (exchange, {"threadblocks": 8}, "needs 15 threadblocks; at most 8"),
        (exchange.with_(helpers=1), {}, "only relay"),
        (exchange.with_(collective=Collective.SENDRECV), {}, "sendrecv has no counterpart"),
        (
            chain(MACHINE, Collective.REDUCE).with_(
                denominator=1_000_003,
                chunks=type(exchange.chunks)(np.array([-1, -1]), np.array([0, 0]), np.array([1, 1_000_002])),
            ),
            {},
            "equal chunks are too many",
        ),
    ]:
        with pytest.raises(PlanError, match=message) as caught:
            msccl_xml.from_plan(plan, **options)
        assert "\n" not in caught.value.message


def test_shared_plans_are_written_in_every_format(shared: Path) -> None:
    written = []
    for vector in vectors.all_of(shared):
        plan = vector.plan
        if not vector.expected["valid"]:
            continue
        if plan.demand is not None or vector.demand.matrix is not None:
            continue
        for dialect in Dialect:
            assert msccl_xml.from_plan(plan, dialect).ranks == len(plan.ranks)
        assert len(mscclpp.to_document(plan)["gpus"]) == len(plan.ranks)
        written.append((plan.collective.value, plan.symmetry is not None))
    assert ("alltoall", True) in written
    assert len(written) >= 4


def test_an_equal_demand_is_no_obstacle() -> None:
    plan = direct_alltoall(MACHINE).with_(demand=np.full((8, 8), 5.0))
    assert msccl_xml.from_plan(plan).ranks == 8


def test_golden_files_are_what_is_written_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = regenerate.write(tmp_path)
    capsys.readouterr()
    assert len(written) >= 6
    for path in written:
        assert path.read_text() == (regenerate.FOLDER / path.name).read_text(), (
            f"{path.name} changed; if it should, run python -m tests.golden.regenerate"
        )


def test_the_command_writes_files_and_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, target = tmp_path / "plan.json", tmp_path / "plan.xml"
    plan = chain(MACHINE, Collective.ALLREDUCE)
    save(plan, source)
    assert cli.main(["export", str(source), "--to", "msccl-xml", "-o", str(target), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["plan"], answer["file"], answer["format"]) == (plan.digest, str(target), "msccl-xml")
    assert cli.main(["export", str(source), "--to", "msccl-xml"]) == 0
    assert capsys.readouterr().out == target.read_text()
    assert cli.main(["check", str(target), "--dialect", "v2"]) == 0
    capsys.readouterr()
    assert cli.main(["export", str(source), "--to", "teccl"]) == 2
    assert "the formats are msccl-xml, msccl-xml-v1" in capsys.readouterr().err
    assert cli.main(["export", str(source), "--to", "msccl-xml", "--threadblocks", "0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err
    broken = json.loads(source.read_text())
    for column in broken["transfers"].values():
        del column[-1]
    source.write_text(json.dumps(broken))
    assert cli.main(["export", str(source), "--to", "msccl-xml"]) == 1
    assert "synth check" in capsys.readouterr().err
