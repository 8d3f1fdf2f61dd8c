"""``synth check``: whether a plan or an MSCCL XML program is right, and whether a stated bound is proven."""

from __future__ import annotations

import argparse
from dataclasses import replace

from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import read_topology
from synth.errors import InputError
from synth.formats import msccl_xml
from synth.plan import Plan
from synth.plan.claim import Claim
from synth.topology import Topology, catalog
from synth.units import format_bytes, format_seconds, parse_size
from synth.verifier import Violation, bound_checkable, verify, verify_claim


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "plan", metavar="PLAN_OR_XML", help="plan document, MSCCL XML of either dialect, or what synth bound said"
    )
    parser.add_argument("--topology", metavar="TOPO", help="file or catalog name; found in the catalog when left out")
    parser.add_argument("--bytes", metavar="N", help="size the stated bound is for, where the plan does not say")
    parser.add_argument(
        "--dialect",
        choices=[dialect.value for dialect in msccl_xml.Dialect],
        help="XML: the runtime that must load it (v1 msccl, v2 msccl-executor-nccl and RCCL); default: either",
    )
    parser.add_argument("--collective", metavar="C", help="XML: what it must do, where the file says something else")


def run(args: argparse.Namespace) -> Answer:
    """Check the file; exit 1 where a rule is broken."""
    data = documents.read_bytes(args.plan)
    if msccl_xml.looks_like_xml(data):
        return check_xml(args, data)
    document = documents.parse(data, subject=args.plan)
    if isinstance(document, dict) and "bound_seconds" in document and "format" not in document:
        return check_claim(args, Claim.from_document(document, subject=args.plan))
    plan = plans.from_document(document, subject=args.plan)
    topology = read_topology(args.topology) if args.topology else find_in_catalog(plan)
    bytes = None if args.bytes is None else parse_size(args.bytes, subject="--bytes")
    violations = verify(plan, topology, bytes=bytes)
    bound_checked = topology is not None and bound_checkable(plan, bytes)
    if topology is None:
        remark = "routes and bound were not checked; give --topology"
    elif not bound_checked:
        remark = "the plan states no bound, or no size for it (--bytes)"
    else:
        remark = "the stated bound is proven"
    summary = f"{plan.collective.value} of {len(plan.ranks)} ranks, {plan.rounds} rounds"
    more = {"bound_checked": bound_checked, "topology": None if topology is None else topology.fingerprint}
    return verdict(violations, more, summary, [remark])


def check_claim(args: argparse.Namespace, claim: Claim) -> Answer:
    """Check a bound by itself."""
    if not args.topology:
        raise InputError(
            f"{args.plan}: is a bound; give the machine that it is for with --topology", subject="--topology"
        )
    topology = read_topology(args.topology)
    violations = verify_claim(claim, topology)
    demand, certificate = claim.demand, claim.certificate
    summary = (
        f"{demand.collective.value} of {format_bytes(demand.bytes)} among {demand.ranks} ranks of {topology.name} "
        f"takes at least {format_seconds(certificate.bound_ns * 1e-9)}"
    )
    remark = "the stated bound is proven"
    if claim.symmetry is not None:
        remark += f", by the orbits of {claim.symmetry.order} symmetries that were checked"
    return verdict(violations, {"bound_checked": True, "topology": topology.fingerprint}, summary, [remark])


def check_xml(args: argparse.Namespace, data: bytes) -> Answer:
    """Check an MSCCL XML program."""
    algorithm = msccl_xml.parse(data, subject=args.plan)
    if args.collective:
        algorithm = replace(algorithm, collective=args.collective)
    report = msccl_xml.verify(algorithm, msccl_xml.Dialect(args.dialect) if args.dialect else None)
    remarks = [f"warning: {warning}" for warning in report.warnings]
    if not report.promise_checked:
        remarks.append(f"what {algorithm.collective!r} promises is not known, so the result was not checked")
    remarks += [f"{dialect.runtime} {reason}" for dialect, reasons in report.refused.items() for reason in reasons]
    if algorithm.skipped:
        remarks.append(f"no runtime reads its elements {', '.join(algorithm.skipped)}")
    more = {
        "bound_checked": False,
        "postcondition_checked": report.promise_checked,
        "refused": {dialect.value: list(reasons) for dialect, reasons in report.refused.items()},
        "warnings": list(report.warnings),
    }
    summary = f"{algorithm.collective} of {algorithm.ranks} ranks, {algorithm.steps} steps"
    return verdict(report.violations, more, summary, remarks)


def verdict(violations: tuple[Violation, ...], more: documents.Json, summary: str, remarks: list[str]) -> Answer:
    """The answer for either kind of file."""
    document = {"valid": not violations, "violations": [violation.to_document() for violation in violations]} | more
    if violations:
        lines = [f"invalid: {len(violations)} violation{'s' if len(violations) > 1 else ''}"]
        lines += [f"  {violation.rule}: {violation.message}" for violation in violations]
    else:
        lines = [f"valid: {summary}", *remarks]
    return Answer(document, "\n".join(lines), exit=1 if violations else 0)


def find_in_catalog(plan: Plan) -> Topology | None:
    """The catalog machine a plan was made for, if it was made for one."""
    if not plan.topology:
        return None
    machines = (catalog.build(name) for name in catalog.names())
    return next((machine for machine in machines if machine.fingerprint == plan.topology), None)
