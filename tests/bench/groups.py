"""Groups: ``python -m tests.bench.groups`` (times are CPU seconds); nothing here is asserted."""

from __future__ import annotations

import time

import numpy as np

from solver.groups.partition import partition
from solver.groups.problem import Problem
from synth.topology import Topology, catalog
from tests.groups.machines import irregular, switched

CASES = [
    ("asym8", 4),
    ("asym8", 2),
    ("ndv2x1", 4),
    ("ndv2x1", 2),
    ("ndv2x1", 3),
    ("hgx-h100x4", 4),
    ("hgx-h100x4", 8),
    ("hgx-h100x4", 16),
    ("dgx2x2", 8),
    ("mi250x1", 4),
    ("mi250x2", 4),
    ("mi250x2", 8),
    ("ndv2x4", 4),
    ("mesh10x10", 10),
]


def row(name: str, topology: Topology, size: int) -> None:
    """Print one line of the table."""
    problem = Problem(topology=topology, gpus=topology.gpus, size=size, bytes=64 * 2**20)
    begin = time.process_time()
    found = partition(problem)
    seconds = time.process_time() - begin
    times = [found.seconds, found.bound, found.baselines["contiguous"], found.baselines["strided"]]
    cells = " | ".join(f"{1e6 * value:.1f}" if np.isfinite(value) else "cut apart" for value in times)
    print(f"| {name} | {len(topology.gpus)} | {size} | {cells} | {found.termination} | {seconds:.2f} |", flush=True)


def main() -> None:
    """Print the table."""
    print("| machine | GPUs | K | us | bound us | contiguous us | strided us | ended | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, size in CASES:
        row(name, catalog.build(name), size)
    row("irregular", irregular(0), 4)
    row("irregular, 16 GPUs", irregular(0, 16), 4)
    for size in (4, 8, 16, 32, 64):
        row("128 nodes of 8", switched((8,) * 128), size)


if __name__ == "__main__":
    main()
