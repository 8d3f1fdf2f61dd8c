"""``synth import``: another synthesizer's program as a plan, so that it can be checked, priced and run."""

from __future__ import annotations

import argparse
from dataclasses import replace

from synth import documents
from synth.cli.answer import Answer
from synth.cli.inputs import read_ranks, read_topology
from synth.errors import DocumentError, InputError, InvalidPlan, PlanError
from synth.formats import msccl_xml
from synth.plan.codec import MAX_SEGMENTS
from synth.units import format_bytes, format_seconds, parse_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MSCCL XML of either dialect")
    parser.add_argument("-o", "--output", metavar="PLAN", help="where to write; default stdout")
    parser.add_argument("--topology", metavar="TOPO", help="file or catalog name of the machine it is to run on")
    parser.add_argument("--ranks", metavar="LIST", help="device ids or positions; default all GPUs of the topology")
    parser.add_argument("--bytes", metavar="N", default="1GB", help="size at which it is priced, default 1GB")
    parser.add_argument("--segments", type=int, metavar="S", help="default: what synth export wrote, else the cheapest")
    parser.add_argument("--collective", metavar="C", help="what it does, where the file says custom")


def run(args: argparse.Namespace) -> Answer:
    """Translate the file and write the plan."""
    data = documents.read_bytes(args.file)
    if not msccl_xml.looks_like_xml(data):
        raise DocumentError(f"{args.file}: is not MSCCL XML, the only format that is imported", subject=args.file)
    algorithm = msccl_xml.parse(data, subject=args.file)
    if args.collective:
        algorithm = replace(algorithm, collective=args.collective)
    topology = read_topology(args.topology) if args.topology else None
    ranks = read_ranks(args.ranks, topology) if topology else args.ranks.split(",") if args.ranks else None
    size = parse_size(args.bytes, subject="--bytes")
    if args.segments is not None and not 1 <= args.segments <= MAX_SEGMENTS:
        raise InputError(f"--segments: is {args.segments}; must be from 1 to {MAX_SEGMENTS}", subject="--segments")
    try:
        imported = msccl_xml.to_plan(algorithm, topology=topology, ranks=ranks, bytes=size, segments=args.segments)
    except (InvalidPlan, PlanError) as error:
        raise type(error)(f"{args.file}: {error.message.removeprefix('plan: ')}", subject=args.file) from None
    plan = imported.plan
    about = {
        "digest": plan.digest,
        "collective": plan.collective.value,
        "rounds_from": imported.timing.value,
        "segments": plan.segments,
        "predicted_seconds": plan.predicted.seconds[0] if plan.predicted else None,
    }
    if args.output is None:
        return Answer(documents.parse(plan.text), plan.text)
    documents.write(args.output, plan.text + "\n")
    text = (
        f"{plan.collective.value} of {len(plan.ranks)} ranks, {plan.rounds} rounds (from {imported.timing.value}), "
        f"{plan.segments} segments, written to {args.output}"
    )
    if plan.predicted:
        text += f"\n{format_bytes(size)}: {format_seconds(plan.predicted.seconds[0])}"
    return Answer(about | {"plan_file": args.output}, text)
