"""What a child process can be asked to do: pure functions from JSON to JSON.

Everything that may be slow or large for hostile input runs here, where a time and a memory limit can end it without
harm to the server.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable

import numpy as np

from server.jobs.request import SolveRequest
from synth import documents, plan, topology
from synth.collective import Demand
from synth.documents import Json
from synth.errors import InputError, InvalidPlan, SolveError, SynthError
from synth.plan import Plan, slice_plan
from synth.plan.rehome import rehome
from synth.plan.sizes import demand_of
from synth.simulator import simulate
from synth.topology import Topology
from synth.topology.fingerprint import canonical_order
from synth.verifier import verify

BASELINE_SECONDS = 1.0
"""What the solver may take to price the direct exchange."""

Report = Callable[[Json], None]
"""Takes the progress so far: {incumbent_seconds?, bound_seconds?, gap?}."""


def solve(task: Json, report: Report) -> Json:
    """Make and verify a plan.

    Args:
        task: {request, topology (text), solver ("module:function"), equal?: {topology, plan} (texts) of an equal
            machine of other names for which the same was solved before}.
        report: takes progress.

    Returns:
        {plan (text), digest, bound_seconds, predicted_seconds, gap}.
    """
    request = SolveRequest.from_document(task["request"])
    machine = _topology(task["topology"])
    demand = request.to_demand()
    found = _renamed(task.get("equal"), machine, request)
    if found is None:
        module, _, name = task["solver"].partition(":")
        solved = getattr(importlib.import_module(module), name)(
            machine,
            demand,
            ranks=request.ranks,
            time_limit=request.time_limit,
            cost=request.cost,
            launch_ns=request.launch_ns,
            seed=request.seed,
            progress=lambda progress: report(_progress(progress)),
        )
        found = solved.plan
        violations = verify(found, machine, bytes=_unsaid(found, request.bytes))
        if violations:
            raise InvalidPlan(
                f"solver: made a plan that breaks {len(violations)} rules, first: {violations[0].message}",
                subject="solver",
            )
    return {"plan": found.text, "digest": found.digest} | _quality(found, machine, demand, request)


def _quality(found: Plan, machine: Topology, demand: Demand, request: SolveRequest) -> dict[str, Json]:
    priced = simulate(found, machine, demand, cost=request.cost, launch_ns=request.launch_ns)
    bound = None if found.certificate is None else found.certificate.best_bound_ns / 1e9
    gap = priced.seconds / bound - 1 if bound else None
    return {"bound_seconds": bound, "predicted_seconds": priced.seconds, "gap": gap}


def _renamed(equal: Json, machine: Topology, request: SolveRequest) -> Plan | None:
    """An equal machine's plan in our names, where it is as good here (routes may break ties by names)."""
    if equal is None:
        return None
    other = _topology(equal["topology"])
    made = plan.from_document(json.loads(equal["plan"]))
    ours = rehome(made, other, machine)
    if ours.ranks != request.ranks or verify(ours, machine, bytes=_unsaid(ours, request.bytes)):
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


def read_topology(task: Json, _report: Report) -> Json:
    """Check a topology: {document} -> {text, digest, fingerprint, name, devices, links, places, nodes, findings}."""
    return describe(topology.from_document(task["document"], subject=task.get("subject", "body")))


def describe(machine: Topology) -> dict[str, Json]:
    """What the server keeps about a topology."""
    text = topology.dumps(machine)
    place = {machine.devices[position].id: number for number, position in enumerate(canonical_order(machine))}
    return {
        "text": text,
        "digest": documents.digest_text(text),
        "fingerprint": machine.fingerprint,
        "name": machine.name,
        "devices": len(machine.devices),
        "links": len(machine.links),
        "places": [[id, place[id]] for id in machine.gpus],
        "nodes": list(machine.nodes),
        "findings": len(machine.findings),
    }


def freeze(task: Json, _report: Report) -> Json:
    """Merge node reports: {name, reports: [text]} -> as :func:`read_topology`."""
    from synth.topology.merge import merge

    parts = [_topology(text) for text in task["reports"]]
    return describe(merge(parts, name=task["name"]))


def check(task: Json, _report: Report) -> Json:
    """Verify a plan: {plan, topology? (text), bytes?} -> {valid, violations, bound_checked, digest}."""
    from synth.verifier.rules import bound_checkable

    read = plan.from_document(task["plan"], subject="body")
    machine = None if task["topology"] is None else _topology(task["topology"])
    size = _unsaid(read, task.get("bytes"))
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
    machine = _topology(task["topology"])
    violations = verify(read, machine, bytes=_unsaid(read, task["bytes"]))
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
    """What a plan's page shows: {plan, topology (texts), bytes?} -> {picture, rows, solver, ..}."""
    from synth.simulator.gantt import gantt_svg

    read, machine = plan.from_document(json.loads(task["plan"])), _topology(task["topology"])
    demand = demand_of(read, task["bytes"])
    made_for = read.predicted.bytes[0] if read.predicted is not None else None
    bound = None
    if read.certificate is not None and made_for:  # bytes over a route take time in proportion
        bound = max(read.certificate.bound_ns * demand.bytes / made_for, read.certificate.latency_bound_ns or 0.0) / 1e9
    rows = [{"name": "bound", "seconds": bound, "gap": None, "rounds": None}] if bound else []
    for name, cost, launch_ns in (
        ("this plan, rounds", "rounds", 0.0),
        ("this plan, rounds of 9 us launch", "rounds", 9000.0),
        ("this plan, timeline", "timeline", 0.0),
    ):
        priced = simulate(read, machine, demand, cost=cost, launch_ns=launch_ns)
        gap = priced.seconds / bound - 1 if bound else None
        rows.append({"name": name, "seconds": priced.seconds, "gap": gap, "rounds": priced.rounds})
    rows += _direct(read, machine, demand, bound)
    return {
        "picture": gantt_svg(read, machine, demand, bound_seconds=bound),
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


def place(task: Json, _report: Report) -> Json:
    """Place experts: {topology (text), loads, ..} -> the answer of ``synth place``."""
    from solver.placement.answer import Request, answer
    from synth.formats import expert_maps

    options = {name: value for name, value in task.items() if name not in ("topology", "loads", "previous")}
    previous = task.get("previous")
    request = Request(
        loads=expert_maps.read_loads({"loads": task["loads"]}, subject="body"),
        previous=None if previous is None else expert_maps.read_map({"phy2log": previous}, subject="body"),
        **options,
    )
    return answer(_topology(task["topology"]), request).document


def groups(task: Json, _report: Report) -> Json:
    """Form groups: {topology (text), ep_size, ranks?, bytes, costs} -> the answer of ``synth groups``."""
    from solver.groups.answer import answer

    options = {name: value for name, value in task.items() if name not in ("topology", "ep_size")}
    return answer(_topology(task["topology"]), task["ep_size"], **options).document


def compare(task: Json, _report: Report) -> Json:
    """Hold measured edges against their routes: {topology (text), edges} -> {edges, findings}."""
    from server import telemetry

    return telemetry.compare(_topology(task["topology"]), task["edges"])


def export(task: Json, _report: Report) -> Json:
    """A stored plan in another system's format: {plan (text), format} -> {text}."""
    from synth.formats.msccl_xml import Dialect, dumps, from_plan

    dialect = {"msccl-xml": Dialect.V2, "msccl-xml-v1": Dialect.V1}[task["format"]]
    return {"text": dumps(from_plan(plan.from_document(json.loads(task["plan"])), dialect))}


def cut(task: Json, _report: Report) -> Json:
    """All slices of a stored plan: {plan (text)} -> [[digest, text], ..] by rank."""
    whole = plan.from_document(json.loads(task["plan"]))
    slices = []
    for rank in range(len(whole.ranks)):
        document = slice_plan(whole, rank)
        slices.append([document["digest"], documents.canonical(document)])
    return slices


def _unsaid(read: Plan, size: int | None) -> int | None:
    """The size a stated bound is for, where the plan itself does not say."""
    return None if read.predicted is not None or read.demand is not None else size


def _topology(text: str) -> Topology:
    return topology.from_document(json.loads(text))


TASKS: dict[str, Callable[[Json, Report], Json]] = {
    "solve": solve,
    "read_topology": read_topology,
    "freeze": freeze,
    "check": check,
    "price": price,
    "compare": compare,
    "draw": draw,
    "groups": groups,
    "place": place,
    "export": export,
    "cut": cut,
}


def run(name: str, task: Json, report: Report) -> Json:
    """Do one task; a failure on purpose comes back as ``{"error": {code, message, subject, kind}}``."""
    try:
        return {"result": TASKS[name](task, report)}
    except SynthError as error:
        return {"error": error_document(error)}
    except MemoryError:
        return {"error": {"kind": "memory", "code": "", "message": "needs more memory than accepted", "subject": None}}
    except RecursionError:
        return {"error": {"kind": "memory", "code": "", "message": "is nested too deeply", "subject": None}}


def error_document(error: SynthError) -> dict[str, Json]:
    """An error as JSON; ``kind`` names its class so that it can be raised again elsewhere."""
    kind = f"{type(error).__module__}:{type(error).__qualname__}"
    return {"kind": kind, "code": error.code, "message": error.message, "subject": error.subject}
