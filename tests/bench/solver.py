"""The solver's whole table: machine, collective, size, predicted, bound, gap, seconds, strategy, best baseline.

    python -m tests.bench.solver                        # every catalog machine, the four common collectives, 1 GB
    python -m tests.bench.solver --machines mi250x1,dgx2x2 --sizes 1MB,1GB --cost timeline -o table.json
    python -m tests.bench.solver --collectives alltoall --skew 0.8   # to experts of Zipf popularity, exponent 0.8

Predicted and bound are model times (``docs/solver.md``); seconds are wall time on this machine, cpu what the process
used of it. Every plan is checked against all rules before its row is printed.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from solver import portfolio
from synth import documents
from synth.collective import Collective, Demand
from synth.simulator import Cost
from synth.testing.traces import drifting_zipf
from synth.topology import Topology, catalog
from synth.units import format_bytes, format_seconds, parse_size
from synth.verifier import verify

BASELINES = ("direct", "ring", "halving-doubling", "two-level", "binomial-tree")
OPTIMA = Path(__file__).resolve().parents[3] / "shared" / "reference" / "optima.tsv"
COLLECTIVES = "alltoall,allgather,reduce_scatter,allreduce"
HEADER = f"{'machine':12} {'collective':14} {'size':>9} {'predicted':>10} {'bound':>10} {'gap':>8} {'/optimum':>8} "
HEADER += f"{'seconds':>8} {'cpu':>7}  {'strategy':16} best baseline"


def main() -> int:
    """Print the table and write it as JSON."""
    args = _arguments()
    known = _optima()
    rows = []
    print(HEADER)
    for row in _rows(args, known):
        rows.append(row)
        print(_line(row), flush=True)
        if args.output:
            documents.write(args.output, documents.canonical({"rows": rows}))
    invalid = sum(not row["valid"] for row in rows)
    print(f"{len(rows)} rows, {invalid} invalid plans", file=sys.stderr)
    return 1 if invalid else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", default=",".join(catalog.names()))
    parser.add_argument("--collectives", default=COLLECTIVES)
    parser.add_argument("--sizes", default="1GB")
    parser.add_argument("--cost", choices=[cost.value for cost in Cost], default=Cost.ROUNDS.value)
    parser.add_argument("--launch-ns", type=float, default=0.0)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew", type=float, help="alltoalls to experts of Zipf popularity with this exponent")
    parser.add_argument("-o", "--output")
    return parser.parse_args()


def _rows(args: argparse.Namespace, known: dict[tuple[str, str], float]) -> Iterator[dict[str, Any]]:
    for name in args.machines.split(","):
        machine = catalog.build(name)
        for collective in args.collectives.split(","):
            for size in args.sizes.split(","):
                yield _row(args, machine, name, Collective(collective), parse_size(size), known)


def _row(
    args: argparse.Namespace,
    machine: Topology,
    name: str,
    collective: Collective,
    size: int,
    known: dict[tuple[str, str], float],
) -> dict[str, Any]:
    count = len(machine.gpus)
    ring = tuple((r, (r + 1) % count) for r in range(count)) if collective is Collective.SENDRECV else ()
    demand = Demand(collective=collective, ranks=count, bytes=size, root=0 if collective.rooted else None, pairs=ring)
    if args.skew is not None and collective is Collective.ALLTOALL:
        demand = replace(demand, matrix=skewed(count, size, args.skew))
    began = time.process_time()
    solved = portfolio.solve(
        machine,
        demand,
        cost=args.cost,
        launch_ns=args.launch_ns,
        time_limit=args.time_limit,
        seed=args.seed,
    )
    cpu_seconds = time.process_time() - began
    baselines = {name: seconds for name, seconds in solved.candidates.items() if name in BASELINES}
    best = min(baselines, key=lambda key: baselines[key], default=None)
    optimum = known.get((name, collective.value)) if demand.matrix is None else None
    certificate = solved.bound.certificate
    return {
        "machine": name,
        "ranks": count,
        "collective": collective.value,
        "bytes": size,
        "cost": args.cost,
        "launch_ns": args.launch_ns,
        "skew": args.skew,
        "predicted_seconds": solved.predicted_seconds,
        "bound_seconds": solved.bound.seconds,
        "bandwidth_bound_seconds": certificate.bound_ns * 1e-9,
        "latency_bound_seconds": (certificate.latency_bound_ns or 0.0) * 1e-9,
        "gap": solved.gap,
        "bandwidth_bound_over_optimum": optimum and certificate.bound_ns * 1e-9 * optimum / size,
        "solve_seconds": solved.seconds,
        "cpu_seconds": cpu_seconds,
        "strategy": solved.strategy,
        "termination": solved.termination.value,
        "best_baseline": best,
        "best_baseline_seconds": None if best is None else baselines[best],
        "candidates": solved.candidates,
        "valid": not verify(solved.plan, machine),
    }


def skewed(ranks: int, size: int, skew: float) -> np.ndarray:
    """[ranks, ranks] bytes of one step of a router, eight experts on each rank; no rank sends more than ``size``."""
    matrix = next(drifting_zipf(ranks, 1, skew=skew, seed=1, experts=8 * ranks)).astype(np.float64)
    return np.asarray(np.floor(matrix * (size / matrix.sum(axis=1).max())))


def _optima() -> dict[tuple[str, str], float]:
    """Known best bytes per second, where the reference table is at hand."""
    if not OPTIMA.is_file():
        return {}
    with OPTIMA.open() as file:
        return {
            (row["topology"], row["collective"]): float(row["optimum_algbw_GBps"]) * 1e9
            for row in csv.DictReader(file, delimiter="\t")
        }


def _line(row: dict[str, Any]) -> str:
    over = row["bandwidth_bound_over_optimum"]
    baseline = row["best_baseline"]
    times = f"{row['best_baseline_seconds'] / row['predicted_seconds']:.2f} x" if baseline else ""
    return (
        f"{row['machine']:12} {row['collective']:14} {format_bytes(row['bytes']):>9} "
        f"{format_seconds(row['predicted_seconds']):>10} {format_seconds(row['bound_seconds']):>10} "
        f"{row['gap']:>8.2%} {'-' if over is None else format(over, '.4f'):>8} {row['solve_seconds']:>8.2f} "
        f"{row['cpu_seconds']:>7.2f}  "
        f"{row['strategy']:16} {baseline or '-'} {times}{'' if row['valid'] else '  INVALID'}"
    )


if __name__ == "__main__":
    sys.exit(main())
