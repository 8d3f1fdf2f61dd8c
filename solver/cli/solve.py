"""``synth solve``: synthesize a plan."""

from __future__ import annotations

import argparse

from solver import exact, picture, portfolio
from solver.cli import book, joint, report, request
from solver.cli.report import Part
from solver.exact import Objective
from solver.explain import explain
from solver.portfolio import Solved
from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import progress
from synth.errors import InputError
from synth.simulator import Cost


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
    exactly = parser.add_argument_group("exact schedules, up to 8 ranks, or 16 that look alike to the machine")
    exactly.add_argument(
        "--exact",
        nargs="?",
        const=Objective.TIME.value,
        choices=[objective.value for objective in Objective],
        help="prove the least time (default), number of rounds of one slot, or of slots in so many rounds",
    )
    exactly.add_argument("--rounds", type=int, metavar="R", help="most rounds; default: as many as may help")
    exactly.add_argument("--chunks", type=int, metavar="C", help="equal parts of every block; default 1")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="PLAN",
        help="start from the routes of this plan, made before some links changed; takes a fraction of the time",
    )
    parser.add_argument("--explain", action="store_true", help="say what binds and what faster links would save")
    parser.add_argument("--picture", metavar="FILE", help="draw time per link and the timeline, as .svg or .html page")
    joint.configure(parser)
    parser.add_argument("-o", "--output", metavar="PLAN", help="write the plan here")


def run(args: argparse.Namespace) -> Answer:
    """Synthesize, write the plan where it was asked for, and say how good it is."""
    if not 0 <= args.launch_ns < 1e12:
        raise InputError(f"--launch-ns: is {args.launch_ns}; must be at least 0 nanoseconds", subject="--launch-ns")
    if args.groups or args.group:
        return joint.run(args)
    _check_exact(args)
    if args.start and (args.range or args.exact):
        raise InputError("--from: goes with neither --range nor --exact, which start anew", subject="--from")
    asked = request.read(args)
    if args.range:
        return book.run(args, asked)
    if args.picture:
        picture.check(args.picture, len(asked.ranks))
    solved, parts = _solve(args, asked)
    why = None
    if args.explain:
        with request.interruptible() as interrupt:
            why = explain(
                solved, asked.topology, ranks=asked.ranks, time_limit=args.time_limit, seed=args.seed, cancel=interrupt
            )
        parts.append(Part(key="explain", document=why.to_document(), lines=tuple(why.lines())))
    if args.output:
        plans.save(solved.plan, args.output)
    if args.picture:
        lines = report.lines(asked, solved, args.output) if why is None else why.lines()
        documents.write(args.picture, picture.draw(solved, asked.topology, lines, page=args.picture.endswith(".html")))
        parts.append(Part(key="picture_file", document=args.picture, lines=(f"picture in {args.picture}",)))
    return report.answer(asked, solved, output=args.output, parts=parts)


def _solve(args: argparse.Namespace, asked: request.Asked) -> tuple[Solved, list[Part]]:
    """Find the plan, and what there is to say about how."""
    parts: list[Part] = []
    start = plans.load(args.start) if args.start else None
    if start is not None:
        parts.append(Part(key="started_from", document=start.digest, lines=(f"started from plan {start.digest[:16]}",)))
    with request.interruptible() as interrupt:
        if args.exact:
            found = exact.solve(
                asked.topology,
                asked.demand,
                ranks=asked.ranks,
                objective=args.exact,
                rounds=args.rounds,
                chunks=args.chunks or 1,
                time_limit=args.time_limit,
                launch_ns=args.launch_ns,
                seed=args.seed,
                cancel=interrupt,
                progress=lambda news: progress(str(news)),
            )
            return found.solved, [report.exact_part(found.exact, used=found.used)]
        solved = portfolio.solve(
            asked.topology,
            asked.demand,
            ranks=asked.ranks,
            time_limit=args.time_limit,
            cost=args.cost,
            launch_ns=args.launch_ns,
            seed=args.seed,
            strategies=args.strategy,
            start=start,
            cancel=interrupt,
            progress=lambda news: progress(str(news)),
        )
    promised = report.oblivious_part(solved)
    return solved, parts if promised is None else [*parts, promised]


def _check_exact(args: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        InputError: it does not.
    """
    for name in ("rounds", "chunks"):
        value, flag = getattr(args, name), f"--{name}"
        if value is not None and not args.exact:
            raise InputError(f"{flag}: goes with --exact, which it limits", subject=flag)
        if value is not None and not 1 <= value <= 64:
            raise InputError(f"{flag}: is {value}; must be from 1 to 64", subject=flag)
    if args.exact and (args.strategy or args.cost != Cost.ROUNDS.value):
        raise InputError(
            "--exact: is a strategy of its own in the rounds model; leave out --strategy and --cost", subject="--exact"
        )
