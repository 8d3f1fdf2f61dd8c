"""How long the probe takes: ``python -m tests.bench.probe_speed`` prints medians; nothing here is asserted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from probe import build
from probe.network import describe
from probe.network.join import join
from probe.sources import sniff
from synth.topology import Topology, rename_node

TOPO = Path(__file__).resolve().parents[3] / "shared" / "data" / "topo"


def median_ms(work: Callable[[], object], times: int) -> float:
    """Median of several runs, in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def node(number: int, one: Topology) -> Topology:
    """One more machine like this one."""
    return rename_node(one, "n0", f"node{number}")


def main() -> None:
    """Print one line per case."""
    for name in ("223-16xl20-bf3.xml", "421-lstopo-dgx2.xml", "075-8gpu-nv18-10nic-ansi-tabs-full.txt"):
        data = (TOPO / name).read_bytes()
        read = median_ms(lambda data=data, name=name: sniff.read(data, subject=name), 20)  # type: ignore[misc]
        whole = median_ms(lambda data=data, name=name: build.topology(sniff.read(data, subject=name)), 20)  # type: ignore[misc]
        print(f"{name:<45} read {read:6.1f} ms, with topology {whole:6.1f} ms")
    one = build.topology(sniff.read((TOPO / "222-8xh800-nvswitch-mlx5.xml").read_bytes(), subject="222"))
    one = replace(one, findings=())
    nodes = [node(number, one) for number in range(1000)]
    for shape in ("flat", "rails", "leaf-spine:16:2"):
        network = describe.read(shape)
        print(f"1000 nodes of 8 GPUs, {shape:<16} {median_ms(lambda n=network: join(nodes, n), 3) / 1e3:6.2f} s")  # type: ignore[misc]


if __name__ == "__main__":
    main()
