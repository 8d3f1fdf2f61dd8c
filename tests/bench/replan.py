"""Solves that start from the plan of before one link changed, against solves from scratch, in CPU time and gap.

    python -m tests.bench.replan
    python -m tests.bench.replan --machines ndv2x4 --repeat 5 -o table.json

Each row solves the changed machine both ways, one after the other, ``--repeat`` times, and shows the medians; every
plan is checked against all rules. CPU time of this process, everything included (routes, symmetry, linear programs,
plan, verification).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from solver import portfolio
from synth import documents
from synth.collective import Collective, Demand
from synth.topology import catalog
from synth.topology.degrade import degrade, parse_factor
from synth.units import parse_size
from synth.verifier import verify

CHANGES = (
    ("mesh10x10", "n0/gpu44:n0/gpu45=0"),
    ("mesh10x10", "n0/gpu44:n0/gpu45=0.5"),
    ("mi250x4", "n0/gpu0:n0/gpu4=0"),
    ("mi250x4", "n0/gpu0:fabric=0"),
    ("hgx-h100x4", "n0/nic0:fabric=0"),
    ("hgx-h100x4", "n0/nic0:fabric=0.5"),
    ("ndv2x4", "n0/gpu0:n0/gpu3=0"),
    ("ndv2x4", "n0/gpu0:n0/gpu3=0.5"),
)
"""A machine and the link that dies or slows down."""
HEADER = "machine     change                   collective scratch s   warm s  times      gap warm gap"


def main() -> int:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", default="mesh10x10,mi250x4,hgx-h100x4,ndv2x4")
    parser.add_argument("--collectives", default="alltoall,allgather")
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    rows = []
    print(HEADER)
    for row in _rows(args):
        rows.append(row)
        print(
            f"{row['machine']:11} {row['change']:24} {row['collective']:10} {row['scratch_cpu_seconds']:9.2f} "
            f"{row['warm_cpu_seconds']:8.2f} {row['scratch_cpu_seconds'] / row['warm_cpu_seconds']:6.1f} "
            f"{row['scratch_gap']:8.2%} {row['warm_gap']:8.2%}{'' if row['valid'] else '  INVALID'}",
            flush=True,
        )
        if args.output:
            documents.write(args.output, documents.canonical({"rows": rows}))
    return 0 if all(row["valid"] for row in rows) else 1


def _rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    earlier: dict[tuple[str, str], portfolio.Solved] = {}
    for name, change in CHANGES:
        if name not in args.machines.split(","):
            continue
        whole = catalog.build(name)
        pair, factor = parse_factor(change)
        machine = degrade(whole, {pair: factor})
        for collective in args.collectives.split(","):
            demand = Demand(collective=Collective(collective), ranks=len(whole.gpus), bytes=parse_size(args.size))
            if (name, collective) not in earlier:
                earlier[name, collective] = portfolio.solve(whole, demand, time_limit=600)
            before = earlier[name, collective].plan
            taken: dict[bool, list[float]] = {False: [], True: []}
            solved: dict[bool, portfolio.Solved] = {}
            for _ in range(args.repeat):
                for warm in (False, True):
                    began = time.process_time()
                    solved[warm] = portfolio.solve(machine, demand, time_limit=600, start=before if warm else None)
                    taken[warm].append(time.process_time() - began)
            yield {
                "machine": name,
                "change": change,
                "collective": collective,
                "scratch_cpu_seconds": statistics.median(taken[False]),
                "warm_cpu_seconds": statistics.median(taken[True]),
                "scratch_gap": solved[False].gap,
                "warm_gap": solved[True].gap,
                "valid": not any(verify(found.plan, machine) for found in solved.values()),
            }


if __name__ == "__main__":
    sys.exit(main())
