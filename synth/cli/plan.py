"""``synth plan expand`` and ``synth plan slice``."""

from __future__ import annotations

import argparse

from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.documents import Json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    expand = actions.add_parser("expand", help="list every chunk and transfer of a symmetric plan")
    part = actions.add_parser("slice", help="one rank's part")
    part.add_argument("--rank", type=int, required=True, metavar="R")
    for action in (expand, part):
        action.add_argument("plan", metavar="PLAN", help="plan document")
        action.add_argument("-o", "--output", metavar="FILE", help="where to write; default stdout")


def run(args: argparse.Namespace) -> Answer:
    """Write the derived document, to a file or to stdout."""
    plan = plans.load(args.plan)
    document: Json
    if args.action == "expand":
        whole = plans.expand(plan)
        document = plans.to_document(whole)
        what = f"plan {whole.digest[:12]}: {len(whole.chunks)} chunks, {len(whole.transfers)} transfers"
    else:
        document = plans.slice_plan(plan, args.rank)
        what = f"rank {args.rank}: {len(document['transfers']['chunk'])} transfers of plan {plan.digest[:12]}"
    text = documents.canonical(document)
    if args.output is None:
        return Answer(document, text)
    documents.write(args.output, text + "\n")
    return Answer({"file": args.output, "digest": documents.digest_text(text)}, f"{what}, written to {args.output}")
