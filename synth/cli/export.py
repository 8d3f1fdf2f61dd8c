"""``synth export``: a plan in another system's format."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.errors import InputError, InvalidPlan
from synth.formats import mscclpp
from synth.formats.msccl_xml import Dialect, dumps, from_plan
from synth.formats.msccl_xml.exporter import THREADBLOCKS
from synth.plan import Plan
from synth.verifier import verify


def to_xml(plan: Plan, dialect: Dialect, args: argparse.Namespace) -> str:
    """The plan as MSCCL XML."""
    options = {"in_place": args.in_place, "protocol": args.protocol, "threadblocks": args.threadblocks}
    return dumps(from_plan(plan, dialect, **options))


def to_mscclpp(plan: Plan, args: argparse.Namespace) -> str:
    """The plan as an MSCCL++ execution plan."""
    document = mscclpp.to_document(plan, in_place=args.in_place, threadblocks=args.threadblocks)
    return documents.canonical(document) + "\n"


FORMATS: dict[str, Callable[[Plan, argparse.Namespace], str]] = {
    "msccl-xml": lambda plan, args: to_xml(plan, Dialect.V2, args),
    "msccl-xml-v1": lambda plan, args: to_xml(plan, Dialect.V1, args),
    "mscclpp-json": to_mscclpp,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="plan document")
    parser.add_argument("--to", metavar="FORMAT", required=True, help=", ".join(FORMATS))
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; default stdout")
    parser.add_argument("--in-place", action="store_true", help="input and output are the same memory")
    parser.add_argument("--protocol", choices=["Simple", "LL", "LL128"], default="Simple", help="of MSCCL XML")
    parser.add_argument(
        "--threadblocks", type=int, default=THREADBLOCKS, metavar="N", help=f"most of a GPU, default {THREADBLOCKS}"
    )


def run(args: argparse.Namespace) -> Answer:
    """Translate a valid plan; an invalid one is refused."""
    if args.to not in FORMATS:
        raise InputError(f"--to: {args.to} is not a format; the formats are {', '.join(FORMATS)}", subject="--to")
    if args.threadblocks < 1:
        raise InputError(f"--threadblocks: is {args.threadblocks}; must be at least 1", subject="--threadblocks")
    plan = plans.load(args.plan)
    broken = verify(plan)
    if broken:
        raise InvalidPlan(f"{args.plan}: {broken[0].message}; 'synth check' lists all {len(broken)} violations")
    text = FORMATS[args.to](plan, args)
    about = {"format": args.to, "plan": plan.digest, "bytes": len(text.encode())}
    if args.output is None:
        return Answer(about | {"text": text}, text.rstrip("\n"))
    documents.write(args.output, text)
    message = f"plan {plan.digest[:12]} as {args.to}, {about['bytes']} bytes, written to {args.output}"
    return Answer(about | {"file": args.output}, message)
