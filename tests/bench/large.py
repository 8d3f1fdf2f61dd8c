"""Bounds and plans of thousands of GPUs: CPU time and peak memory of a fresh process each, everything included.

    python -m tests.bench.large
    python -m tests.bench.large --machines hgx-h100x128,torus8x8x16 --plans -o table.json
    python -m tests.bench.large --machines hgx-h100x2048+leaf-spine:16:2,hgx-h100x2048+dead-nic --check

A machine is a catalog name of any size, with ``+leaf-spine:16:2``, ``+rails`` or ``+isolated-rails`` behind it for
another network, or ``+dead-nic`` for one NIC that is down. ``--check`` proves every bound again from what ``synth
bound`` would write, as ``synth check`` does, and shows the CPU time of that too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from solver import portfolio
from solver.bound import prove
from synth import documents
from synth.collective import Demand, parse_collective
from synth.plan.claim import Claim
from synth.topology import Topology, catalog
from synth.topology.degrade import degrade
from synth.units import format_rate, format_seconds, parse_size
from synth.verifier import verify_claim
from tests.clusters import networked

MACHINES = "hgx-h100x128,hgx-h100x2048,mi250x1024,torus16x32x32"
HEADER = f"{'machine':32} {'collective':14} {'bound':>9} {'algbw':>12} {'CPU s':>7} {'GB':>5}"


def main() -> int:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", default=MACHINES)
    parser.add_argument("--collectives", default="alltoall,allgather,reduce_scatter,allreduce")
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--plans", action="store_true", help="plan too, not only bound")
    parser.add_argument("--check", action="store_true", help="check every bound, and show what that takes")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    rows = []
    print(HEADER + ("   gap" if args.plans else "") + ("  check" if args.check else ""))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh, max_tasks_per_child=1) as pool:
        for machine in args.machines.split(","):
            for collective in args.collectives.split(","):
                size = parse_size(args.size, subject="--size")
                row = pool.submit(measured, machine, collective, size, plan=args.plans, check=args.check).result()
                rows.append(row)
                print(_line(row), flush=True)
    if args.output:
        documents.write(args.output, documents.canonical(rows) + "\n")
    return 0 if all(row["valid"] and row["optimal"] for row in rows) else 1


def build(name: str) -> Topology:
    """The machine of a name, see above."""
    base, _, change = name.partition("+")
    if not change:
        return catalog.build(base)
    if change == "dead-nic":
        return degrade(catalog.build(base), {("n0/nic0", "fabric"): 0.0})
    return networked(base, change)


def measured(name: str, collective: str, size: int, *, plan: bool, check: bool) -> dict[str, Any]:
    """One row."""
    machine = build(name)
    demand = Demand(collective=parse_collective(collective), ranks=len(machine.gpus), bytes=size)
    began = time.process_time()
    solved = portfolio.solve(machine, demand, time_limit=600.0) if plan else None
    bound = prove(machine, demand, time_limit=600.0) if solved is None else solved.bound
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    valid, checked = True, None
    if check:
        began = time.process_time()
        claim = Claim(ranks=machine.gpus, demand=demand, certificate=bound.certificate, symmetry=bound.symmetry)
        valid = verify_claim(claim, machine) == ()
        checked = time.process_time() - began
    return {
        "machine": name,
        "ranks": demand.ranks,
        "collective": collective,
        "bound_seconds": bound.seconds,
        "algbw_bytes_per_s": bound.algbw_bytes_per_s,
        "optimal": bound.optimal,
        "gap": None if solved is None else solved.gap,
        "cpu_seconds": seconds,
        "peak_bytes": peak,
        "check_cpu_seconds": checked,
        "valid": valid,
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['machine']:32} {row['collective']:14} {format_seconds(row['bound_seconds']):>9} "
        f"{format_rate(row['algbw_bytes_per_s']):>12} {row['cpu_seconds']:7.2f} {row['peak_bytes'] / 1e9:5.2f}"
        + (f" {row['gap']:5.1%}" if row["gap"] is not None else "")
        + (f" {row['check_cpu_seconds']:6.2f}" if row["check_cpu_seconds"] is not None else "")
        + ("" if row["optimal"] else "  not optimal")
        + ("" if row["valid"] else "  NOT PROVEN")
    )


if __name__ == "__main__":
    sys.exit(main())
