"""``synth bench --tune``: NCCL's settings against its defaults, with this benchmark as the measure."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from runtime.tuning import CANDIDATES, Tried, Tuned, parse_settings, tune
from synth import documents
from synth.cli.answer import Answer
from synth.errors import InputError

Start = Callable[[Mapping[str, str]], dict[str, Any]]
"""Starts ranks under additional variables; gives what ``synth bench`` found."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a tuning."""
    add = parser.add_argument
    add("--tune", action="store_true", help="try NCCL's settings, each in fresh processes, and export what helps")
    add("--setting", action="append", default=[], metavar="A=1", help="setting to try instead of the short list")
    add("--tune-rounds", type=int, default=3, metavar="K", help="measurements of each setting, default 3")
    add("--export", metavar="FILE", help="write what --tune keeps as lines for a shell")


def run(args: argparse.Namespace, start: Start) -> Answer:
    """Tune and answer."""
    if args.tune_rounds < 1:
        raise InputError(f"--tune-rounds: is {args.tune_rounds}; must be at least 1")
    candidates = parse_settings(args.setting) or CANDIDATES
    last: dict[str, Any] = {}

    def measure(setting: Mapping[str, str]) -> dict[str, float]:
        last.update(start(setting))
        wrong = sum(row["wrong_bytes"] or 0 for row in last["rows"])
        if wrong:
            raise InputError(f"{wrong} bytes were wrong")
        return {f"{row['bytes']} {row['schedule']}": row["seconds"] or math.inf for row in last["rows"]}

    def tell(tried: Tried) -> None:
        print(f"# {_line(tried)}", file=sys.stderr, flush=True)

    found = tune(measure, candidates, rounds=args.tune_rounds, tell=tell)
    document = {
        "collective": args.collective,
        "transport": last["transport"],
        "ranks": last["ranks"],
        "rounds": args.tune_rounds,
        "noise": found.noise,
        "tried": [
            {
                "setting": dict(one.setting),
                "ratios": list(one.ratios),
                "gain": one.gain,
                "beats_default": found.beats_default(one),
                "failure": one.failure,
            }
            for one in found.tried
        ],
        "kept": dict(found.kept),
        "gain": found.gain,
        "environment": found.environment(),
    }
    if args.export:
        documents.write(args.export, found.environment())
    if args.output:
        documents.write(args.output, json.dumps(document))
    return Answer(document, _text(args.collective, document, found))


def _line(one: Tried) -> str:
    if one.failure is not None:
        return f"{one.name:<60} failed: {one.failure}"
    return f"{one.name:<60} {one.gain:6.3f}  {min(one.ratios):6.3f} to {max(one.ratios):6.3f}"


def _text(collective: str, document: Mapping[str, Any], found: Tuned) -> str:
    lines = [
        f"# {collective}, {document['ranks']} ranks over {document['transport']}; default's time over the setting's, "
        f"{document['rounds']} rounds; above 1 is faster",
        *(f"  {_line(one)}{'  kept' if found.beats_default(one) else ''}" for one in found.tried),
    ]
    return "\n".join([*lines, found.environment().rstrip()])
