from pathlib import Path

import pytest

from synth.simulator import simulate
from synth.topology import Routes
from synth.verifier import proven_bound_ns, verify
from tests.verifier import vectors


def test_verdicts_and_prices_equal_the_independent_ones(shared: Path) -> None:
    found = vectors.all_of(shared)
    assert len(found) >= 8
    for vector in found:
        plan, topology, demand, expected = vector.plan, vector.topology, vector.demand, vector.expected
        assert (not verify(plan, topology)) == expected["valid"]
        if not expected["valid"]:
            continue
        rounds = simulate(plan, topology, demand)
        assert rounds.rounds == expected["rounds"]
        assert rounds.seconds == pytest.approx(expected["rounds_seconds"], rel=1e-9)
        launched = simulate(plan, topology, demand, launch_ns=9000)
        assert launched.seconds == pytest.approx(expected["rounds_seconds_launch_9000"], rel=1e-9)
        timeline = simulate(plan, topology, demand, cost="timeline")
        assert timeline.seconds == pytest.approx(expected["timeline_seconds"], rel=1e-9)
        assert plan.certificate is not None
        proven = proven_bound_ns(plan.certificate, Routes.among(topology, plan.ranks), demand)
        assert proven == pytest.approx(expected["proven_bound_ns"], rel=1e-6)


def test_broken_vectors_name_rank_round_and_chunk(shared: Path) -> None:
    by_note = {vector.expected["note"]: vector for vector in vectors.all_of(shared)}
    missing = by_note["the last transfer is missing"]
    (violation,) = verify(missing.plan, missing.topology)
    assert (violation.rule, violation.rank, violation.chunk) == ("not-delivered", 5, 11)
    twice = by_note["one reduction arrives twice"]
    (violation,) = verify(twice.plan, twice.topology)
    assert (violation.rule, violation.rank, violation.round, violation.chunk) == ("reduced-twice", 0, 0, 0)
