"""``synth solve --groups`` and ``--group``: several collectives at once, planned together."""

from __future__ import annotations

import argparse
from pathlib import Path

from solver.cli import request
from solver.joint import Ask, Joint, solve_together
from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import progress, read_demand, read_ranks, read_topology
from synth.documents import Fields, Json
from synth.errors import InputError
from synth.plan.codec import certificate_to_document
from synth.topology import Topology
from synth.topology.model import abridge
from synth.units import format_bytes, format_seconds, parse_size

MOST = 1024
"""Groups of one request."""
ALONE_ONLY = ("ranks", "demand", "root", "pairs", "range", "exact", "explain", "picture", "strategy", "start")
"""Options of a solve of one collective."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    several = parser.add_argument_group("several collectives at the same time, planned together; -o numbers the plans")
    several.add_argument(
        "--groups", metavar="FILE", help="what `synth groups --json` prints: each group runs --collective at once"
    )
    several.add_argument(
        "--group",
        action="append",
        metavar="C:BYTES:RANKS",
        help="one more group, such as allreduce:64MB:0-7; may be repeated",
    )


def run(args: argparse.Namespace) -> Answer:
    """Plan all groups, write one plan each, and compare with planning each alone."""
    for name in ALONE_ONLY:
        if getattr(args, name, None):
            flag = "--from" if name == "start" else f"--{name}"
            raise InputError(f"{flag}: does not go with --groups and --group", subject=flag)
    if args.cost != "rounds" or args.helpers != "none":
        flag = "--cost" if args.cost != "rounds" else "--helpers"
        raise InputError(f"{flag}: groups are planned in the rounds model, without helpers", subject=flag)
    request.check_limits(args)
    topology = read_topology(args.topology)
    asks = _read(args, topology)
    with request.interruptible() as interrupt:
        joint = solve_together(
            topology,
            asks,
            time_limit=args.time_limit,
            launch_ns=args.launch_ns,
            seed=args.seed,
            cancel=interrupt,
            progress=lambda news: progress(str(news)),
        )
    files: list[str | None] = [None] * len(asks)
    if args.output:
        target = Path(args.output)
        files = [str(target.with_name(f"{target.stem}-{number}{target.suffix}")) for number in range(len(asks))]
        for plan, file in zip(joint.plans, files, strict=True):
            plans.save(plan, str(file))
    return Answer(_document(asks, joint, files), _text(topology, asks, joint, files))


def _read(args: argparse.Namespace, topology: Topology) -> list[Ask]:
    """The groups that the arguments name."""
    asks = []
    if args.groups:
        if args.collective is None:
            raise InputError(
                "--collective: is missing; --groups needs the collective that they run", subject="--groups"
            )
        size = 1_000_000_000 if args.bytes is None else parse_size(args.bytes, subject="--bytes")
        listed = Fields(documents.read(args.groups), f"{args.groups}#").items("groups", most=MOST)
        for number, group in enumerate(listed):
            if not isinstance(group, list) or not all(isinstance(device, str) for device in group):
                raise InputError(f"{args.groups}#/groups/{number}: must be an array of device ids", subject=args.groups)
            asks.append(Ask(ranks=tuple(group), demand=read_demand(args.collective, group, bytes=size)))
    elif args.collective is not None:
        raise InputError("--collective: each --group names its own; leave it out", subject="--collective")
    for text in args.group or []:
        parts = text.split(":", 2)
        if len(parts) < 3:
            raise InputError(
                f"--group: is {documents.shorten(text)}; write COLLECTIVE:BYTES:RANKS, such as alltoall:64MB:0-7",
                subject="--group",
            )
        ranks = read_ranks(parts[2], topology)
        demand = read_demand(parts[0], ranks, bytes=parse_size(parts[1], subject="--group"))
        asks.append(Ask(ranks=ranks, demand=demand))
    return asks


def _document(asks: list[Ask], joint: Joint, files: list[str | None]) -> dict[str, Json]:
    return {
        "together_seconds": joint.seconds,
        "separate_seconds": joint.separate_seconds,
        "bound_seconds": joint.bound_seconds,
        "gap": joint.gap,
        "termination": joint.termination.value,
        "solve_seconds": joint.solve_seconds,
        "certificate": certificate_to_document(joint.certificate),
        "groups": [
            {
                "ranks": list(ask.ranks),
                "collective": ask.demand.collective.value,
                "bytes": ask.demand.bytes,
                "digest": plan.digest,
                "strategy": plan.solver["strategy"],
                "plan_file": file,
                "alone_seconds": solved.predicted_seconds,
                "alone_bound_seconds": solved.bound.seconds,
            }
            for ask, plan, solved, file in zip(asks, joint.plans, joint.alone, files, strict=True)
        ],
    }


def _text(topology: Topology, asks: list[Ask], joint: Joint, files: list[str | None]) -> str:
    saved = joint.separate_seconds / joint.seconds - 1 if joint.seconds else 0.0
    lines = [
        f"{len(asks)} groups at once on {topology.name}: planned together {format_seconds(joint.seconds)}, "
        f"{joint.gap:.2%} over the bound of {format_seconds(joint.bound_seconds)}; "
        f"planned each alone and run at once {format_seconds(joint.separate_seconds)} ({saved:.1%} longer); "
        f"{joint.termination.value} after {joint.solve_seconds:.2f} s"
    ]
    for number, (ask, plan, solved, file) in enumerate(zip(asks, joint.plans, joint.alone, files, strict=True)):
        lines.append(
            f"group {number}: {ask.demand.collective.value} of {format_bytes(ask.demand.bytes)} among "
            f"{abridge(ask.ranks, 4)}: {format_seconds(solved.predicted_seconds)} with nothing else running; "
            f"{plan.solver['strategy']} plan {plan.digest[:16]}" + (f" in {file}" if file else "")
        )
    return "\n".join(lines)
