"""The MSCCL XML verifier: verdicts on real files, each rule alone, hostile files, the command."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from synth.cli import main as cli
from synth.errors import InputError
from synth.formats import msccl_xml
from synth.formats.msccl_xml import Dialect

EXCHANGE = """<algo name="exchange" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" \
inplace="0" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="2" s_chunks="1">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""


def rules(text: str, dialect: Dialect | None = None) -> set[str]:
    return {violation.rule for violation in msccl_xml.verify(msccl_xml.parse(text), dialect).violations}


def changed(old: str, new: str, count: int = 1) -> str:
    assert old in EXCHANGE
    return EXCHANGE.replace(old, new, count)


def test_every_real_file_gets_its_verdict(shared: Path) -> None:
    folder = shared / "data/msccl_xml"
    rows = list(csv.DictReader((folder / "INDEX.tsv").read_text().splitlines(), delimiter="\t"))
    assert len(rows) >= 50
    for row in rows:
        algorithm = msccl_xml.load(folder / row["file"])
        steps = Counter(s.kind.value for g in algorithm.gpus for b in g.threadblocks for s in b.steps)
        assert (algorithm.ranks, algorithm.channels, dict(steps)) == (
            int(row["gpus"]),
            int(row["channels"]),
            {kind: int(count) for kind, count in (part.split(":") for part in row["steps"].split())},
        )
        report = msccl_xml.verify(algorithm)
        broken = {violation.rule for violation in report.violations}
        match row["verdict"]:
            case "ok":
                assert report.promise_checked, row
                assert not broken, row
            case "wrong":
                assert broken & {"bounds", "reduction", "undefined-read", "postcondition"}, row
            case _:  # what a custom program promises is in no file
                assert broken <= {"postcondition"}, row
                assert report.promise_checked == (row["collective"] != "custom"), row


def test_the_largest_file_takes_seconds(shared: Path) -> None:
    began = time.process_time()
    algorithm = msccl_xml.load(shared / "data/msccl_xml/alltoall_two_step_8x8.xml")
    assert not msccl_xml.verify(algorithm).violations
    assert time.process_time() - began < 30  # takes half a second; quadratic work would take minutes


def test_a_right_program_is_valid() -> None:
    assert rules(EXCHANGE) == set()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('<gpu id="1"', '<gpu id="2"', "numbering"),
        ('<tb id="1"', '<tb id="2"', "numbering"),
        ('s="1" type="r"', 's="7" type="r"', "numbering"),
        ('s_chunks="1"', 's_chunks="-1"', "numbering"),
        ('send="1" recv="1"', 'send="0" recv="1"', "connection"),
        ('send="1" recv="1"', 'send="2" recv="1"', "connection"),
        ('send="-1" recv="-1" chan="0"', 'send="1" recv="-1" chan="0"', "connection"),
        ('recv="1" chan="0"', 'recv="1" chan="1"', "connection"),
        ('send="1" recv="1"', 'send="-1" recv="1"', "peer"),
        ('cnt="1"', 'cnt="0"', "count"),
        ('dstoff="1" cnt="1"', 'dstoff="2" cnt="1"', "bounds"),
        ('srcoff="0" dstbuf="o" dstoff="0"', 'srcoff="-1" dstbuf="o" dstoff="0"', "bounds"),
        ('type="r"', 'type="rrc"', "reduction"),
        ('nchunksperloop="2"', 'nchunksperloop="3"', "chunks"),
        ('depid="-1" deps="-1"', 'depid="1" deps="0"', "dependency"),
        ('depid="-1" deps="-1"', 'depid="1" deps="5"', "dependency"),
        ('depid="-1" deps="-1"', 'depid="0" deps="1"', "dependency"),
        ('type="s" srcbuf="i"', 'type="s" srcbuf="s"', "undefined-read"),
        ('dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>\n    </tb>\n  </gpu>', "", "postcondition"),
        ('inplace="0" outofplace="1"', 'inplace="0" outofplace="0"', "place"),
        ('ngpus="2"', 'ngpus="8"', "dialect"),
        ('ngpus="2" ', "", "dialect"),
        ('proto="Simple"', 'proto="Fast"', "dialect"),
        ("<algo name", "<?xml version='1.0'?><algo name", "dialect"),
    ],
)
def test_each_rule_alone(old: str, new: str, rule: str) -> None:
    if rule == "postcondition":  # the copy of rank 0's own chunk goes to the wrong place
        old, new = 'type="cpy" srcbuf="i" srcoff="0" dstbuf="o"', 'type="cpy" srcbuf="i" srcoff="0" dstbuf="s"'
    assert rule in rules(changed(old, new))


def test_a_lost_message_is_found_and_named() -> None:
    lost = changed('      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1"', "      <other")
    report = msccl_xml.verify(msccl_xml.parse(lost))
    (violation,) = report.violations
    assert violation.rule == "fifo"
    assert "1 -> 0 on channel 0: 1 sent, 0 received" in violation.message
    assert "is never received" in violation.message


def test_two_writers_race_even_when_the_result_happens_to_be_right() -> None:
    both = changed('dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>\n    </tb>\n  </gpu>', "@")
    both = both.replace("@", 'dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>\n    </tb>\n  </gpu>')
    report = msccl_xml.verify(msccl_xml.parse(both))
    race = next(violation for violation in report.violations if violation.rule == "race")
    assert (race.rank, race.chunk) == (0, 1)
    assert "gpu 0 threadblock 0 step 1" in race.message
    assert "gpu 0 threadblock 1 step 0" in race.message


def test_a_deadlock_names_who_waits_for_whom() -> None:
    receive_first = EXCHANGE
    for peer in ("0", "1"):
        send = f'<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{peer}"'
        receive = f'<step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{1 - int(peer)}"'
        receive_first = receive_first.replace(send, "@").replace(receive, send).replace("@", receive)
    receive_first = receive_first.replace('s="1" type="r"', 's="0" type="r"').replace(
        's="0" type="s"', 's="1" type="s"'
    )
    (violation,) = msccl_xml.verify(msccl_xml.parse(receive_first)).violations
    assert violation.rule == "deadlock"
    assert "gpu 0 threadblock 0 step 0 (r), line 4 waits for gpu 1 threadblock 0 step 0 (r)" in violation.message


def test_messages_longer_than_a_connection_are_a_warning(shared: Path) -> None:
    algorithm = msccl_xml.load(shared / "data/msccl_xml/allgather_recursive_doubling_8.xml")
    report = msccl_xml.verify(algorithm)
    assert not report.violations
    assert report.warnings
    assert "may hang" in report.warnings[0]


def test_dialects_say_what_they_refuse() -> None:
    assert rules(EXCHANGE, Dialect.V1) == rules(EXCHANGE, Dialect.V2) == set()
    old = changed(' outofplace="1" minBytes="0" maxBytes="0"', "")
    assert rules(old) == set()
    assert rules(old, Dialect.V2) == {"dialect"}
    report = msccl_xml.verify(msccl_xml.parse(old))
    assert report.refused[Dialect.V2] == ("refuses <algo> without outofplace, minBytes, maxBytes",)
    assert rules(changed('coll="allgather"', 'coll="custom"'), Dialect.V2) == {"dialect"}


HOSTILE = [
    "",
    "<",
    "<algo",
    EXCHANGE[:700],
    EXCHANGE.replace("</tb>", "", 1),
    "<plan/>",
    '<algo coll="allgather"/>',
    '<algo nchunksperloop="2"/>',
    '<algo coll="allgather" nchunksperloop="two"/>',
    '<algo coll="allgather" nchunksperloop="99999999999999999999"/>',
    '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;&x;">]><algo name="&y;"/>',
    '<!DOCTYPE a SYSTEM "file:///etc/passwd"><algo/>',
    "<algo>" + "<x>" * 100_000,
    '<?xml version="1.0" encoding="nonsense"?><algo/>',
    EXCHANGE.replace('type="r"', 'type="rx"'),
    EXCHANGE.replace('srcbuf="i"', 'srcbuf="q"'),
    EXCHANGE.replace('cnt="1"', 'cnt="many"'),
    EXCHANGE.replace(' cnt="1"', ""),
    EXCHANGE.replace("<tb ", "<gpu ").replace("</tb>", "</gpu>"),
    "\0" * 50,
    "{}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_unreadable_files_end_in_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        msccl_xml.parse(text, subject="hostile.xml")
    assert "hostile.xml" in caught.value.message
    file = tmp_path / "hostile.xml"
    file.write_text(text)
    assert cli.main(["check", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert "hostile.xml" in err


def test_truncation_names_line_and_column() -> None:
    with pytest.raises(InputError, match=r"cut\.xml line \d+ column \d+: .*truncated"):
        msccl_xml.parse(EXCHANGE[:700], subject="cut.xml")


def test_huge_numbers_are_refused_before_they_cost_memory() -> None:
    huge = changed('nchunksperloop="2"', 'nchunksperloop="2000000000"')
    with pytest.raises(InputError, match="at most"):
        rules(huge)
    assert "bounds" in rules(changed('cnt="1"', 'cnt="900000000000"', 8))


def test_adding_in_circles_costs_no_memory() -> None:
    add = '<step s="{}" type="re" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    copy = (
        '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    )
    adds = "".join(add.format(number) for number in range(1, 200))
    report = msccl_xml.verify(msccl_xml.parse(changed(copy, copy + adds).replace("allgather", "allreduce")))
    assert "a sum of too many contributions" in report.violations[0].message


def test_the_command_answers_json_and_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "exchange.xml"
    file.write_text(EXCHANGE)
    assert cli.main(["check", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["valid"], answer["violations"], answer["bound_checked"]) == (True, [], False)
    assert answer["refused"] == {"v1": [], "v2": []}
    file.write_text(changed('coll="allgather"', 'coll="custom"'))
    assert cli.main(["check", str(file)]) == 0
    assert "the result was not checked" in capsys.readouterr().out
    assert cli.main(["check", str(file), "--collective", "alltoall", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {violation["rule"] for violation in answer["violations"]} == {"postcondition"}
