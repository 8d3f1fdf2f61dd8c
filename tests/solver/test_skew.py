"""Uneven alltoalls at the edges: zeros, one hot column or row, blocks, one pair, ratios of 1 to a million."""

from __future__ import annotations

import numpy as np
import pytest

from solver import portfolio
from synth.collective import Collective, Demand
from synth.simulator import simulate
from synth.testing import assert_plan_implements
from synth.topology import Topology, catalog, degrade

MACHINES = {name: catalog.build(name) for name in ("hgx-h100x2", "ndv2x1", "asym8", "mi250x1", "ndv2x2")}
MACHINES["hgx-h100x2 with a dead NIC"] = degrade(MACHINES["hgx-h100x2"], {("n0/gpu3", "n0/nic3"): 0})
BYTES = 10**9


def matrices(ranks: int) -> dict[str, np.ndarray]:
    """Bytes from row to column, of which the busiest rank sends or receives 1 GB."""
    random = np.random.default_rng(0)
    few, hot_column, hot_row, blocks, ratio, pair = (np.zeros((ranks, ranks)) for _ in range(6))
    few[random.random((ranks, ranks)) < 0.15] = 1.0
    hot_column[:], hot_row[:] = 0.01, 0.01
    hot_column[:, 3] = hot_row[2] = 1.0
    size = ranks // 4
    for first in range(0, ranks, size):
        other = (first + size) % ranks
        blocks[first : first + size, other : other + size] = 1.0
    ratio[:] = np.where(random.random((ranks, ranks)) < 0.1, 1.0, 1e-6)
    pair[0, ranks - 1] = 1.0
    found = {
        "zeros": few,
        "hot column": hot_column,
        "hot row": hot_row,
        "blocks": blocks,
        "1 to a million": ratio,
        "one pair": pair,
        "lognormal": np.exp(random.normal(0, 4, (ranks, ranks))),
    }
    for matrix in found.values():
        np.fill_diagonal(matrix, 0.0)
    return {
        name: np.floor(matrix * BYTES / max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
        for name, matrix in found.items()
    }


@pytest.mark.parametrize("shape", matrices(8))
@pytest.mark.parametrize("name", MACHINES)
def test_edges_of_skew_have_valid_plans_near_a_proven_bound(name: str, shape: str) -> None:
    machine = MACHINES[name]
    matrix = matrices(len(machine.gpus))[shape]
    demand = Demand(
        collective=Collective.ALLTOALL, ranks=len(matrix), bytes=int(matrix.sum(axis=1).max()), matrix=matrix
    )
    solved = portfolio.solve(machine, demand)
    assert_plan_implements(solved.plan, machine, demand)
    assert solved.bound.optimal
    assert 0 <= solved.gap <= 0.1
    assert simulate(solved.plan, machine, demand).seconds == pytest.approx(solved.predicted_seconds, rel=1e-6)
    direct = solved.candidates.get("direct")
    assert direct is None or solved.predicted_seconds <= direct


@pytest.mark.parametrize("machine", [MACHINES["hgx-h100x2"], MACHINES["ndv2x1"]], ids=lambda machine: machine.name)
def test_nothing_to_send_is_a_plan_too(machine: Topology) -> None:
    ranks = len(machine.gpus)
    demand = Demand(collective=Collective.ALLTOALL, ranks=ranks, bytes=0, matrix=np.zeros((ranks, ranks)))
    for strategies in (None, ["oblivious"]):
        solved = portfolio.solve(machine, demand, strategies=strategies)
        assert_plan_implements(solved.plan, machine, demand)
        assert solved.bound.seconds == 0.0
