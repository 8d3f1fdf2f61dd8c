"""Assertions about plans."""

from __future__ import annotations

from synth.collective import Demand
from synth.plan import Plan, from_document, to_document
from synth.plan.sizes import chunk_bytes
from synth.simulator import simulate
from synth.topology import Routes, Topology
from synth.verifier import proven_bound_ns, verify

ROUNDING = 1e-9


def assert_plan_implements(plan: Plan, topology: Topology, demand: Demand) -> None:
    """Check everything a finished plan promises.

    It breaks no rule; it carries all of the demand's bytes; its certificate proves its bound; neither cost model puts
    it below that bound; and its document reads back to the same bytes.

    Args:
        plan: as a solver gives it.
        topology: where it runs.
        demand: what it was made for.
    """
    violations = verify(plan, topology)
    assert not violations, [violation.message for violation in violations]
    assert plan.collective is demand.collective
    assert abs(chunk_bytes(plan, demand).sum() - demand.blocks.size.sum()) <= ROUNDING * max(
        demand.blocks.size.sum(), 1
    )
    assert plan.certificate is not None, "the plan states no bound"
    proven = proven_bound_ns(plan.certificate, Routes.among(topology, plan.ranks), demand)
    assert plan.certificate.bound_ns <= proven, "the stated bound is not proven"
    for cost in ("rounds", "timeline"):
        seconds = simulate(plan, topology, demand, cost=cost).seconds
        bound = plan.certificate.best_bound_ns * 1e-9
        assert seconds >= bound * (1 - ROUNDING), f"{cost}: {seconds} s is below the bound of {bound} s"
    again = from_document(to_document(plan))
    assert again.digest == plan.digest
