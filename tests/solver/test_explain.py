"""Explanations name the links that bind."""

from __future__ import annotations

import pytest

from solver import portfolio
from solver.explain import binding_links, second_best
from synth.collective import Collective, Demand
from synth.topology import catalog


def test_the_nics_bind_an_alltoall_between_nodes() -> None:
    machine = catalog.build("hgx-h100x2")
    solved = portfolio.solve(machine, Demand(collective=Collective.ALLTOALL, ranks=16, bytes=10**9))
    binding = binding_links(solved.bound.certificate, machine)
    assert sum(entry.part for entry in binding) == pytest.approx(1.0)
    assert all(machine.links[link].bytes_per_s == 50e9 for entry in binding for link in entry.links)
    assert binding[0].part >= binding[-1].part
    name, seconds = second_best(solved) or ("", 0.0)
    assert name in solved.candidates
    assert seconds >= solved.predicted_seconds
