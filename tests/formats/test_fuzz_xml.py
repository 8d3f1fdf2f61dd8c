"""Mutated files: whatever is in them, reading and checking them ends in a report or in an InputError."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.errors import InputError
from synth.formats import msccl_xml
from tests.formats.test_check_xml import EXCHANGE

VALUES = [
    "-1",
    "0",
    "1",
    "2",
    "3",
    "31",
    "255",
    "256",
    "100000",
    "-5",
    "",
    "x",
    "i",
    "o",
    "s",
    "rrcs",
    "nop",
    "re",
    "&lt;",
]


def survives(text: str | bytes) -> None:
    try:
        report = msccl_xml.verify(msccl_xml.parse(text))
    except InputError:
        return
    assert all(violation.rule and violation.message for violation in report.violations)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    survives(data)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(VALUES)), min_size=1, max_size=6))
def test_attributes_with_other_values(changes: list[tuple[int, str]]) -> None:
    text = EXCHANGE
    for where, value in changes:
        places = list(re.finditer(r'"([^"]*)"', text))
        begin, end = places[where % len(places)].span(1)
        text = text[:begin] + value + text[end:]
    survives(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=4))
def test_lines_moved_and_dropped(moves: list[tuple[int, int]]) -> None:
    lines = EXCHANGE.splitlines()
    for source, target in moves:
        line = lines.pop(source % len(lines))
        if target % 3:
            lines.insert(target % (len(lines) + 1), line)
    survives("\n".join(lines))


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("name", ["allreduce_1step_4", "allreduce_rdh_8", "sccl_ring4_ReduceScatter_ls"])
def test_real_files_with_bytes_flipped_and_cut(shared: Path, name: str, seed: int) -> None:
    source = bytearray((shared / f"data/msccl_xml/{name}.xml").read_bytes())
    dice = random.Random(seed)
    for _ in range(20):
        mutated = bytearray(source)
        for _ in range(dice.randint(1, 4)):
            mutated[dice.randrange(len(mutated))] = dice.choice(b'0123456789"<>iors-/ ')
        survives(bytes(mutated[: dice.randint(1, len(mutated))] if dice.random() < 0.2 else mutated))
