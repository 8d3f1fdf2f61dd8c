"""Checking, pricing, drawing, cutting and translating plans."""

from __future__ import annotations

import json

import numpy as np

from server.tasks.reading import Report, read_text, unsaid
from synth import documents, plan
from synth.collective import Demand
from synth.documents import Json
from synth.errors import InputError, InvalidPlan, SolveError
from synth.plan import Plan
from synth.plan.sizes import demand_of
from synth.plan.slices import Slicer
from synth.simulator import LAUNCH_NS, simulate
from synth.topology import Topology
from synth.verifier import verify

BASELINE_SECONDS = 1.0
"""What the solver may take to price the direct exchange."""


def check(task: Json, _report: Report) -> Json:
    """Verify a plan: {plan, topology? (text), bytes?} -> {valid, violations, bound_checked, digest}."""
    from synth.verifier.rules import bound_checkable

    read = plan.from_document(task["plan"], subject="body")
    machine = None if task["topology"] is None else read_text(task["topology"])
    size = unsaid(read, task.get("bytes"))
    violations = verify(read, machine, bytes=size)
    return {
        "valid": not violations,
        "violations": [violation.to_document() for violation in violations],
        "bound_checked": machine is not None and bound_checkable(read, size),
        "digest": read.digest,
    }


def price(task: Json, _report: Report) -> Json:
    """Price a plan: {plan, topology (text), bytes?, cost, launch_ns} -> the simulate answer of the command line."""
    read = plan.from_document(task["plan"], subject="body")
    machine = read_text(task["topology"])
    violations = verify(read, machine, bytes=unsaid(read, task["bytes"]))
    if violations:
        raise InvalidPlan(
            f"plan: breaks {len(violations)} rules, first: {violations[0].message}; only valid plans have a price",
            subject="plan",
        )
    priced = simulate(read, machine, demand_of(read, task["bytes"]), cost=task["cost"], launch_ns=task["launch_ns"])
    busiest = np.argsort(-priced.link_seconds, kind="stable")[:5]
    return {
        "seconds": priced.seconds,
        "bytes": priced.bytes,
        "rounds": priced.rounds,
        "algbw_bytes_per_s": priced.algbw_bytes_per_s,
        "busbw_bytes_per_s": priced.busbw_bytes_per_s,
        "busiest_links": [
            {"src": machine.links[p].src, "dst": machine.links[p].dst, "seconds": float(priced.link_seconds[p])}
            for p in busiest.tolist()
        ],
    }


def draw(task: Json, _report: Report) -> Json:
    """What a plan's page shows: {plan, topology (texts), bytes?} -> {picture, bars, rows, solver, ..}."""
    from synth.simulator.bars import bars_svg
    from synth.simulator.gantt import gantt_svg

    read, machine = plan.from_document(json.loads(task["plan"])), read_text(task["topology"])
    demand = demand_of(read, task["bytes"])
    made_for = read.predicted.bytes[0] if read.predicted is not None else None
    bound = None
    if read.certificate is not None and made_for:  # bytes over a route take time in proportion
        bound = max(read.certificate.bound_ns * demand.bytes / made_for, read.certificate.latency_bound_ns or 0.0) / 1e9
    rows = [{"name": "bound", "seconds": bound, "gap": None, "rounds": None}] if bound else []
    for name, cost, launch_ns in (
        ("this plan, rounds", "rounds", 0.0),
        ("this plan, rounds of 9 us launch", "rounds", LAUNCH_NS),
        ("this plan, timeline", "timeline", 0.0),
    ):
        priced = simulate(read, machine, demand, cost=cost, launch_ns=launch_ns)
        gap = priced.seconds / bound - 1 if bound else None
        rows.append({"name": name, "seconds": priced.seconds, "gap": gap, "rounds": priced.rounds})
    rows += _direct(read, machine, demand, bound)
    return {
        "picture": gantt_svg(read, machine, demand, bound_seconds=bound),
        "bars": bars_svg(read, machine, demand, seconds=priced.seconds, bound_seconds=bound),
        "collective": read.collective.value,
        "ranks": len(read.ranks),
        "bytes": demand.bytes,
        "rows": rows,
        "solver": sorted((name, str(value)[:200]) for name, value in read.solver.items()),
    }


def _direct(read: Plan, machine: Topology, demand: Demand, bound: float | None) -> list[Json]:
    """The baseline of every plan, where it exists: one grouped direct exchange."""
    from solver import portfolio

    ranks = read.ranks[: read.members]
    try:
        solved = portfolio.solve(machine, demand, ranks=ranks, time_limit=BASELINE_SECONDS, strategies=("direct",))
    except (SolveError, InputError):
        return []
    seconds = solved.predicted_seconds
    gap = seconds / bound - 1 if bound else None
    return [{"name": "direct exchange, rounds", "seconds": seconds, "gap": gap, "rounds": solved.plan.rounds}]


def export(task: Json, _report: Report) -> Json:
    """A stored plan in another system's format: {plan (text), format} -> {text}."""
    from synth.formats.msccl_xml import Dialect, dumps, from_plan

    dialect = {"msccl-xml": Dialect.V2, "msccl-xml-v1": Dialect.V1}[task["format"]]
    return {"text": dumps(from_plan(plan.from_document(json.loads(task["plan"])), dialect))}


def cut(task: Json, _report: Report) -> Json:
    """Slices of a stored plan: {plan (text), first, ranks} -> [[digest, text], ..] of so many ranks from the first."""
    slicer = Slicer(plan.from_document(json.loads(task["plan"])))
    slices = []
    for rank in range(task["first"], task["first"] + task["ranks"]):
        document = slicer.cut(rank)
        slices.append([document["digest"], documents.canonical(document)])
    return slices
