"""``synth check``: whether a plan is right, and whether its stated bound is proven."""

from __future__ import annotations

import argparse

from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import read_topology
from synth.plan import Plan
from synth.topology import Topology, catalog
from synth.units import parse_size
from synth.verifier import bound_checkable, verify


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="plan document")
    parser.add_argument("--topology", metavar="TOPO", help="file or catalog name; found in the catalog when left out")
    parser.add_argument("--bytes", metavar="N", help="size the stated bound is for, where the plan does not say")


def run(args: argparse.Namespace) -> Answer:
    """Check the plan; exit 1 where a rule is broken."""
    plan = plans.load(args.plan)
    topology = read_topology(args.topology) if args.topology else find_in_catalog(plan)
    bytes = None if args.bytes is None else parse_size(args.bytes, subject="--bytes")
    violations = verify(plan, topology, bytes=bytes)
    bound_checked = topology is not None and bound_checkable(plan, bytes)
    document = {
        "valid": not violations,
        "violations": [violation.to_document() for violation in violations],
        "bound_checked": bound_checked,
        "topology": None if topology is None else topology.fingerprint,
    }
    if violations:
        lines = [f"invalid: {len(violations)} violation{'s' if len(violations) > 1 else ''}"]
        lines += [f"  {violation.rule}: {violation.message}" for violation in violations]
    else:
        lines = [f"valid: {plan.collective.value} of {len(plan.ranks)} ranks, {plan.rounds} rounds"]
        if topology is None:
            lines.append("routes and bound were not checked; give --topology")
        elif not bound_checked:
            lines.append("the plan states no bound, or no size for it (--bytes)")
        else:
            lines.append("the stated bound is proven")
    return Answer(document, "\n".join(lines), exit=1 if violations else 0)


def find_in_catalog(plan: Plan) -> Topology | None:
    """The catalog machine a plan was made for, if it was made for one."""
    if not plan.topology:
        return None
    machines = (catalog.build(name) for name in catalog.names())
    return next((machine for machine in machines if machine.fingerprint == plan.topology), None)
