"""Making a plan, or taking over that of an equal machine."""

from __future__ import annotations

import importlib
import inspect
import json
import math

from server.jobs.request import SolveRequest
from server.tasks.reading import Report, read_text, unsaid
from synth import plan
from synth.collective import Demand
from synth.documents import Json
from synth.errors import InvalidPlan
from synth.plan import Plan
from synth.plan.rehome import rehome
from synth.simulator import simulate
from synth.topology import Topology
from synth.verifier import verify


def solve(task: Json, report: Report) -> Json:
    """Make and verify a plan.

    Args:
        task: {request, topology (text), solver ("module:function"), equal?: {topology, plan} (texts) of an equal
            machine of other names for which the same was solved before, earlier?: plan (text) for the same GPUs
            from before some links changed}.
        report: takes progress.

    Returns:
        {plan (text), digest, bound_seconds, predicted_seconds, gap}.
    """
    request = SolveRequest.from_document(task["request"])
    machine = read_text(task["topology"])
    demand = request.to_demand()
    found = _renamed(task.get("equal"), machine, request)
    if found is None:
        earlier = None if task.get("earlier") is None else plan.from_document(json.loads(task["earlier"]))
        found = _make(task["solver"], machine, demand, request, earlier, report)
        _check(found, machine, request.bytes)
    return {"plan": found.text, "digest": found.digest} | _quality(found, machine, demand, request)


def solve_book(task: Json, report: Report) -> Json:
    """Make a few plans that share a range of sizes: {request, topology (text)} -> {pages}.

    Each page is as :func:`solve` answers, with ``bytes``, ``min_bytes`` and ``max_bytes``.
    """
    from solver.book import make_book

    request = SolveRequest.from_document(task["request"])
    machine = read_text(task["topology"])
    book = make_book(
        machine,
        request.to_demand(),
        least=request.min_bytes,
        most=request.max_bytes,
        ranks=request.ranks,
        time_limit=request.time_limit,
        cost=request.cost,
        launch_ns=request.launch_ns,
        seed=request.seed,
        progress=lambda news: report(_progress(news)),
    )
    pages = []
    for page in book.pages:
        made, demand = page.plan, page.solved.demand
        _check(made, machine, demand.bytes)
        sizes = {"bytes": demand.bytes, "min_bytes": made.min_bytes, "max_bytes": made.max_bytes}
        pages.append({"plan": made.text, "digest": made.digest} | sizes | _quality(made, machine, demand, request))
    return {"pages": pages}


def _make(
    solver: str, machine: Topology, demand: Demand, request: SolveRequest, earlier: Plan | None, report: Report
) -> Plan:
    """A new plan, started from an earlier one by solvers that can."""

    def progress(news: object) -> None:
        report(_progress(news))

    if request.exact is not None:
        from solver import exact

        return exact.solve(
            machine,
            demand,
            ranks=request.ranks,
            **request.exact,
            time_limit=request.time_limit,
            launch_ns=request.launch_ns,
            seed=request.seed,
            progress=progress,
        ).solved.plan
    module, _, name = solver.partition(":")
    solve = getattr(importlib.import_module(module), name)
    more: dict[str, Json] = {} if request.strategies is None else {"strategies": request.strategies}
    if earlier is not None and "start" in inspect.signature(solve).parameters:
        more["start"] = earlier
    made: Plan = solve(
        machine,
        demand,
        ranks=request.ranks,
        time_limit=request.time_limit,
        cost=request.cost,
        launch_ns=request.launch_ns,
        seed=request.seed,
        progress=progress,
        **more,
    ).plan
    return made


def _check(made: Plan, machine: Topology, size: int) -> None:
    """Refuse a plan that breaks a rule.

    Raises:
        InvalidPlan: it does.
    """
    violations = verify(made, machine, bytes=unsaid(made, size))
    if violations:
        raise InvalidPlan(
            f"solver: made a plan that breaks {len(violations)} rules, first: {violations[0].message}", subject="solver"
        )


def _quality(found: Plan, machine: Topology, demand: Demand, request: SolveRequest) -> dict[str, Json]:
    priced = simulate(found, machine, demand, cost=request.cost, launch_ns=request.launch_ns)
    bound = None if found.certificate is None else found.certificate.best_bound_ns / 1e9
    gap = priced.seconds / bound - 1 if bound else None
    return {"bound_seconds": bound, "predicted_seconds": priced.seconds, "gap": gap}


def _renamed(equal: Json, machine: Topology, request: SolveRequest) -> Plan | None:
    """An equal machine's plan in our names, where it is as good here (routes may break ties by names)."""
    if equal is None:
        return None
    other = read_text(equal["topology"])
    made = plan.from_document(json.loads(equal["plan"]))
    ours = rehome(made, other, machine)
    if ours.ranks != request.ranks or verify(ours, machine, bytes=unsaid(ours, request.bytes)):
        return None
    demand = request.to_demand()
    as_good = simulate(ours, machine, demand).seconds <= simulate(made, other, demand).seconds * (1 + 1e-9)
    return ours if as_good else None


def _progress(progress: object) -> Json:
    """The solver's progress as what a job shows."""
    shown: dict[str, Json] = {}
    for name in ("incumbent_seconds", "bound_seconds", "gap"):
        value = progress.get(name) if isinstance(progress, dict) else getattr(progress, name, None)
        if value is not None and math.isfinite(value):
            shown[name] = float(value)
    message = getattr(progress, "message", None)
    return shown if message is None else shown | {"message": str(message)[:200]}
