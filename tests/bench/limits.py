"""How well time limits are kept: ``python -m tests.bench.limits [--cpu] [LIMIT ...]``; default 0.5, 1, 2 and 5 s.

One row per request that takes longer than the limit when it may: seconds over the limit, what the plan is then worth.
``--cpu`` counts this process's CPU time as the time, for machines that others use too. Nothing here is asserted.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from solver import portfolio
from synth.collective import Collective, Demand
from synth.topology import Topology, catalog, degrade
from tests.bench.solver import skewed


def requests() -> list[tuple[str, Topology, Demand]]:
    """Those that take seconds: large machines, little symmetry, skew."""
    dead = degrade(catalog.build("hgx-h100x16"), {("n0/gpu0", "n0/nic0"): 0})
    found = [
        (f"{name} {collective}", machine, _demand(machine, collective))
        for name, machine in (
            ("mesh10x10", catalog.build("mesh10x10")),
            ("hgx-h100x16, NIC dead", dead),
            ("mi250x4", catalog.build("mi250x4")),
        )
        for collective in (Collective.ALLTOALL, Collective.ALLGATHER, Collective.ALLREDUCE, Collective.BROADCAST)
    ]
    for name in ("mesh10x10", "hgx-h100x16", "torus4x4x4"):
        machine = catalog.build(name)
        matrix = skewed(len(machine.gpus), 10**9, 0.8)
        found.append((f"{name} alltoall, skewed", machine, _demand(machine, Collective.ALLTOALL, matrix)))
    return found


def _demand(machine: Topology, collective: Collective, matrix: np.ndarray | None = None) -> Demand:
    root = 0 if collective.rooted else None
    return Demand(collective=collective, ranks=len(machine.gpus), bytes=10**9, root=root, matrix=matrix)


def main() -> None:
    """Print the table."""
    words = sys.argv[1:]
    if "--cpu" in words:
        words.remove("--cpu")
        time.monotonic = time.process_time
    limits = [float(word) for word in words] or [0.5, 1.0, 2.0, 5.0]
    print(f"{'request':40} {'limit':>6} {'took':>7} {'over':>6} {'gap':>8}  ended as")
    for name, machine, demand in requests():
        for limit in limits:
            solved = portfolio.solve(machine, demand, time_limit=limit)
            over = max(solved.seconds / limit - 1, 0.0)
            print(
                f"{name:40} {limit:6.1f} {solved.seconds:7.2f} {over:6.0%} {solved.gap:8.2%}  {solved.termination}",
                flush=True,
            )
            if solved.seconds < 0.8 * limit:
                break


if __name__ == "__main__":
    main()
