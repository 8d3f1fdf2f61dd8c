"""``synth solve --range``: a few plans that together serve every size."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from solver.book import make_book
from solver.cli import request
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import progress
from synth.errors import InputError
from synth.units import format_bytes, parse_size


def run(args: argparse.Namespace, asked: request.Asked) -> Answer:
    """Plans for a range of sizes."""
    least, colon, most = args.range.partition(":")
    if not colon or args.bytes is not None or args.strategy or args.exact or args.explain or args.picture:
        raise InputError(
            f"--range: is {args.range!r}; write MIN:MAX, such as 1KB:1GB, without --bytes, --strategy and --exact",
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
