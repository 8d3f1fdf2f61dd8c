"""``synth solve``: synthesize a plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from solver import portfolio
from solver.book import make_book
from solver.cli import request
from solver.explain import binding_links
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import progress
from synth.errors import InputError
from synth.simulator import Cost
from synth.units import format_bytes, format_rate, format_seconds, parse_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    request.configure(parser)
    parser.add_argument("--cost", choices=[cost.value for cost in Cost], default=Cost.ROUNDS.value)
    parser.add_argument("--launch-ns", type=float, default=0.0, metavar="NS", help="cost of starting a round (rounds)")
    parser.add_argument(
        "--strategy", action="append", choices=portfolio.names(), help="try only this one; may be repeated"
    )
    parser.add_argument(
        "--range",
        metavar="MIN:MAX",
        help="a few plans that together serve every size, such as 1KB:1GB; -o numbers them",
    )
    parser.add_argument("-o", "--output", metavar="PLAN", help="write the plan here")


def run(args: argparse.Namespace) -> Answer:
    """Synthesize, write the plan where it was asked for, and say how good it is."""
    if not 0 <= args.launch_ns < 1e12:
        raise InputError(f"--launch-ns: is {args.launch_ns}; must be at least 0 nanoseconds", subject="--launch-ns")
    asked = request.read(args)
    if args.range:
        return _book(args, asked)
    with request.interruptible() as interrupt:
        solved = portfolio.solve(
            asked.topology,
            asked.demand,
            ranks=asked.ranks,
            time_limit=args.time_limit,
            cost=args.cost,
            launch_ns=args.launch_ns,
            seed=args.seed,
            strategies=args.strategy,
            cancel=interrupt,
            progress=lambda news: progress(str(news)),
        )
    if args.output:
        plans.save(solved.plan, args.output)
    certificate = solved.bound.certificate
    document = {
        "digest": solved.plan.digest,
        "strategy": solved.strategy,
        "termination": solved.termination.value,
        "bound_seconds": solved.bound.seconds,
        "bandwidth_bound_seconds": certificate.bound_ns * 1e-9,
        "latency_bound_seconds": (certificate.latency_bound_ns or 0.0) * 1e-9,
        "binding": solved.bound.binding,
        "predicted_seconds": solved.predicted_seconds,
        "algbw_bytes_per_s": solved.demand.bytes / solved.predicted_seconds if solved.predicted_seconds else 0.0,
        "gap": solved.gap,
        "solve_seconds": solved.seconds,
        "bytes": solved.demand.bytes,
        "plan_file": args.output,
        "candidates": solved.candidates,
        "binding_links": [
            {"title": entry.title, "part": entry.part, "links": list(entry.links)}
            for entry in binding_links(certificate, asked.topology)
        ],
    }
    return Answer(document, _text(asked, solved, args.output))


def _text(asked: request.Asked, solved: portfolio.Solved, output: str | None) -> str:
    plan, demand = solved.plan, solved.demand
    algbw = demand.bytes / solved.predicted_seconds if solved.predicted_seconds else 0.0
    lines = [
        f"{demand.collective.value} of {format_bytes(demand.bytes)} among {demand.ranks} ranks of "
        f"{asked.topology.name}: {format_seconds(solved.predicted_seconds)}, {format_rate(algbw)}, "
        f"{solved.gap:.2%} over the bound of {format_seconds(solved.bound.seconds)} ({solved.bound.binding})",
        f"{solved.strategy}, {len(plan.chunks)} chunks in {plan.segments} segments over {plan.rounds} rounds; "
        f"{solved.termination.value} after {solved.seconds:.2f} s",
        f"plan {plan.digest}" + (f" in {output}" if output else "; keep it with -o PLAN"),
    ]
    others = {name: seconds for name, seconds in solved.candidates.items() if name != solved.strategy}
    if others:
        lines.append("others: " + ", ".join(f"{name} {format_seconds(s)}" for name, s in others.items()))
    if solved.bound.binding == "bandwidth":
        binding = binding_links(solved.bound.certificate, asked.topology)[:3]
        lines += [f"{entry.part:.0%} of the bound hangs on {entry.title}" for entry in binding]
    return "\n".join(lines)


def _book(args: argparse.Namespace, asked: request.Asked) -> Answer:
    """Plans for a range of sizes."""
    least, colon, most = args.range.partition(":")
    if not colon or args.bytes is not None or args.strategy:
        raise InputError(
            f"--range: is {args.range!r}; write MIN:MAX, such as 1KB:1GB, without --bytes and --strategy",
            subject="--range",
        )
    with request.interruptible() as interrupt:
        book = make_book(
            asked.topology,
            asked.demand,
            least=parse_size(least, subject="--range"),
            most=parse_size(most, subject="--range"),
            ranks=asked.ranks,
            time_limit=args.time_limit,
            cost=args.cost,
            launch_ns=args.launch_ns,
            seed=args.seed,
            cancel=interrupt,
            progress=lambda news: progress(str(news)),
        )
    pages: list[dict[str, Any]] = []
    for number, page in enumerate(book.pages):
        file = None
        if args.output:
            target = Path(args.output)
            file = str(target.with_name(f"{target.stem}-{number}{target.suffix}"))
            plans.save(page.plan, file)
        pages.append(
            {
                "min_bytes": page.plan.min_bytes,
                "max_bytes": page.plan.max_bytes,
                "digest": page.plan.digest,
                "strategy": page.solved.strategy,
                "plan_file": file,
            }
        )
    lines = [
        f"{format_bytes(page['min_bytes'])} to {format_bytes(page['max_bytes'])}: {page['strategy']}, "
        f"plan {page['digest'][:16]}" + (f" in {page['plan_file']}" if page["plan_file"] else "")
        for page in pages
    ]
    return Answer({"plans": pages, "complete": book.complete}, "\n".join(lines))
