"""MSCCL XML as plans: round trips, real files of other synthesizers, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from synth import plan as plans
from synth.cli import main as cli
from synth.collective import Collective
from synth.errors import InvalidPlan, PlanError
from synth.formats import msccl_xml
from synth.formats.msccl_xml.messages import Timing
from synth.plan import Plan
from synth.plan.sizes import demand_of
from synth.simulator import simulate
from synth.topology import catalog
from synth.verifier import verify
from tests.formats import generated
from tests.formats.test_check_xml import EXCHANGE
from tests.golden import regenerate
from tests.plans import chain


@settings(max_examples=40, deadline=None)
@given(plan=generated.plans())
def test_a_round_trip_is_valid_and_costs_no_more(plan: Plan) -> None:
    machine = regenerate.machine(len(plan.ranks))
    text = msccl_xml.dumps(msccl_xml.from_plan(plan))
    imported = msccl_xml.to_plan(msccl_xml.parse(text), topology=machine, bytes=10**6)
    again = imported.plan
    assert verify(again, machine) == ()
    assert (again.collective, again.root, again.segments) == (plan.collective, plan.root, plan.segments)
    ours, theirs = (simulate(each, machine, demand_of(each, 10**6)).seconds for each in (again, plan))
    assert ours <= theirs * (1 + 1e-9)
    assert again.predicted is not None
    assert again.predicted.seconds == (ours,)


@settings(max_examples=40, deadline=None)
@given(plan=generated.plans())
def test_without_comments_rounds_are_read_off_what_waits_for_what(plan: Plan) -> None:
    text = msccl_xml.dumps(msccl_xml.from_plan(plan))
    bare = "\n".join(line for line in text.splitlines() if "<!--" not in line)
    with_comments = msccl_xml.to_plan(msccl_xml.parse(text))
    assert with_comments.timing is Timing.COMMENTS
    assert with_comments.plan.rounds == plan.rounds
    imported = msccl_xml.to_plan(msccl_xml.parse(bare))
    assert imported.timing is not Timing.COMMENTS
    assert verify(imported.plan) == ()
    assert imported.plan.rounds <= plan.rounds


def test_every_right_file_of_a_known_collective_becomes_a_plan(shared: Path) -> None:
    folder = shared / "data/msccl_xml"
    rounds = {}
    for row in csv.DictReader((folder / "INDEX.tsv").read_text().splitlines(), delimiter="\t"):
        algorithm = msccl_xml.load(folder / row["file"])
        if row["verdict"] == "ok":
            imported = msccl_xml.to_plan(algorithm)
            assert verify(imported.plan) == ()
            assert imported.plan.collective.value == row["collective"]
            rounds[row["file"]] = imported.plan.rounds
        else:
            with pytest.raises((InvalidPlan, PlanError)):
                msccl_xml.to_plan(algorithm)
    assert rounds["allgather_recursive_doubling_8.xml"] == 3
    assert rounds["allreduce_a100_ring_8_ch1_i1.xml"] == 14
    assert rounds["alltoall_two_step_8x8.xml"] == 2
    assert rounds["sccl_dgx1_Allgather_ls.xml"] == 2


def test_other_synthesizers_can_be_priced(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = shared / "data/msccl_xml/sccl_dgx1_Broadcast_ls.xml", tmp_path / "plan.json"
    words = ["import", str(source), "--topology", "ndv2x1", "--collective", "broadcast", "-o", str(target)]
    assert cli.main([*words, "--bytes", "1MB", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["collective"], answer["plan_file"]) == ("broadcast", str(target))
    plan = plans.load(target)
    assert plan.root == 0
    assert plan.topology == catalog.build("ndv2x1").fingerprint
    assert cli.main(["simulate", str(target), "--topology", "ndv2x1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] == pytest.approx(answer["predicted_seconds"])
    assert cli.main([*words, "--segments", "3"]) == 0
    assert "3 segments" in capsys.readouterr().out
    assert plans.load(target).segments == 3


def test_what_is_no_plan_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.xml"

    def refused(text: str, *words: str) -> tuple[int, str]:
        file.write_text(text)
        status = cli.main(["import", str(file), *words])
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.strip().splitlines()) == 1
        return status, err

    assert refused("{}")[0] == 2
    assert refused(EXCHANGE, "--segments", "0") == (2, "synth: --segments: is 0; must be from 1 to 1048576\n")
    status, message = refused(EXCHANGE, "--topology", "ndv2x1")
    assert (status, "is for 2 GPUs, not 8" in message) == (2, True)
    status, message = refused(EXCHANGE, "--topology", "ndv2x1", "--ranks", "0,7")
    assert (status, "has no route" in message) == (2, True)
    status, message = refused(EXCHANGE.replace('coll="allgather"', 'coll="custom"'))
    assert (status, "--collective" in message) == (2, True)
    status, message = refused(EXCHANGE.replace('type="cpy"', 'type="nop"'))
    assert (status, "synth check" in message) == (1, True)


def test_two_versions_of_a_chunk_are_refused() -> None:
    """Rank 1 passes rank 0's part on alone although it also keeps the sum: right as a program, no plan."""
    plan = chain(regenerate.machine(3), Collective.ALLREDUCE, segments=1)
    text = msccl_xml.dumps(msccl_xml.from_plan(plan))
    assert msccl_xml.to_plan(msccl_xml.parse(text)).plan.rounds == plan.rounds
    algorithm = msccl_xml.parse(_TWO_VERSIONS)
    assert msccl_xml.verify(algorithm).violations == ()
    with pytest.raises(PlanError, match="one value per rank and chunk"):
        msccl_xml.to_plan(algorithm)


def _step(number: int, kind: str, src: str, dst: str, count: int = 1, after: str = "-1 -1", done: int = 0) -> str:
    block, step = after.split()
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" '
        f'cnt="{count}" depid="{block}" deps="{step}" hasdep="{done}"/>'
    )


_TWO_VERSIONS = f"""<algo name="x" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="3" coll="reduce" inplace="0">
<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
<tb id="0" send="1" recv="-1" chan="0">{_step(0, "s", "i0", "o-1")}</tb>
</gpu>
<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="1">
<tb id="0" send="-1" recv="0" chan="0">{_step(0, "r", "i-1", "s0", done=1)}</tb>
<tb id="1" send="2" recv="-1" chan="0">{_step(0, "s", "s0", "o-1", after="0 0")}{_step(1, "s", "i0", "o-1")}</tb>
</gpu>
<gpu id="2" i_chunks="1" o_chunks="1" s_chunks="0">
<tb id="0" send="-1" recv="1" chan="0">{_step(0, "rrc", "i0", "o0")}{_step(1, "rrc", "o0", "o0")}</tb>
</gpu>
</algo>"""
