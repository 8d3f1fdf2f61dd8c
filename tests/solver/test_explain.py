"""Explanations name the links that bind, what faster ones would save, and the second best; pictures show it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from solver import portfolio
from solver.bound import prove
from solver.explain import binding_links, explain
from synth.cli.main import main
from synth.collective import Collective, Demand
from synth.topology import catalog, degrade

SVG = "{http://www.w3.org/2000/svg}"


def test_the_nics_bind_an_alltoall_between_nodes() -> None:
    machine = catalog.build("hgx-h100x2")
    solved = portfolio.solve(machine, Demand(collective=Collective.ALLTOALL, ranks=16, bytes=10**9))
    binding = binding_links(solved.bound.certificate, machine)
    assert sum(entry.part for entry in binding) == pytest.approx(1.0)
    assert all(machine.links[link].bytes_per_s == 50e9 for entry in binding for link in entry.links)
    assert binding[0].part >= binding[-1].part
    why = explain(solved, machine)
    assert why.second_best is not None
    name, seconds = why.second_best
    assert name in solved.candidates
    assert seconds >= solved.predicted_seconds
    assert why.upgrades[0].change == "a second NIC beside each of the 16 of the machine"
    assert why.upgrades[0].saves == pytest.approx(0.5, abs=1e-3)
    assert "a second NIC beside each of the 16 of the machine would save 50 %" in why.lines()
    assert any(line.startswith("alone would save nothing: a second NIC beside n0/nic0") for line in why.lines())


def test_a_saving_is_that_of_the_faster_machine() -> None:
    whole = catalog.build("hgx-h100x2")
    slow = degrade(whole, {("n0/gpu3", "n0/nic3"): 0.5})
    demand = Demand(collective=Collective.ALLTOALL, ranks=16, bytes=10**9)
    why = explain(portfolio.solve(slow, demand), slow)
    alone = next(item for item in why.upgrades if item.change.startswith("a second NIC beside n0/nic"))
    nic = alone.change.removeprefix("a second NIC beside ")
    mended = replace(
        slow,
        links=tuple(
            replace(link, bytes_per_s=2 * link.bytes_per_s) if nic in (link.src, link.dst) else link
            for link in slow.links
        ),
    )
    expected = 1 - prove(mended, demand).seconds / prove(slow, demand).seconds
    assert alone.saves == pytest.approx(expected, abs=1e-3)
    assert alone.saves > 0.02


def test_latency_is_said_to_bind_where_it_does() -> None:
    machine = catalog.build("hgx-h100x1")
    solved = portfolio.solve(machine, Demand(collective=Collective.ALLGATHER, ranks=8, bytes=1000))
    why = explain(solved, machine)
    assert why.upgrades == ()
    assert "latency binds" in why.lines()[0]
    assert why.to_document()["bandwidth_bound_seconds"] < why.to_document()["latency_bound_seconds"]


def test_the_command_explains_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "why.svg"
    words = ["solve", "mi250x1", "--collective", "allgather", "--explain", "--picture"]
    assert main([*words, str(picture), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["explain"]["second_best"] is None
    assert answer["explain"]["links"] == answer["binding_links"]
    assert answer["explain"]["upgrades"][0]["saves"] > 0.1
    assert answer["picture_file"] == str(picture)
    root = ElementTree.parse(picture).getroot()
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert "Time per link of allgather on mi250x1" in titles
    assert "Timeline of allgather on mi250x1" in titles
    page = tmp_path / "why.html"
    assert main([*words, str(page)]) == 0
    text = capsys.readouterr().out
    assert "second best: none" in text
    assert "would save" in page.read_text()
    assert page.read_text().count("<svg") == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["hgx-h100x1", "--picture", "plan.png"], "must end in .svg or .html"),
        (["1.json", "--picture", "plan.svg"], "1.json"),
        (["hgx-h100x1", "--explain", "--range", "1KB:1MB"], "--range"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", *words, "--collective", "allgather"]) == 2
    assert complaint in capsys.readouterr().err
