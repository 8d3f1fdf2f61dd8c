"""Plans against the MPI library's own collectives, for real, on a network shaped like an asymmetric machine.

    sudo python -m tests.bench.emulation [--machine asym8] [--bytes 8MB] [-o FILE]

One network namespace per rank; each rank's ports are shaped in the kernel to the machine's rates, scaled down, so that
ratios stay. Plans are made for the network as it is shaped. Both sides move the same checked data in one process
group, one after the other; seconds are the slowest rank's, medians. Links between switches (an SMP bus) are not shaped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import synth
from synth import documents, plan
from synth.cli.inputs import read_topology
from synth.topology import Topology
from synth.topology import save as save_topology
from synth.units import format_seconds, parse_size
from tests.bench.emulation import network

COLLECTIVES = ("alltoall", "allgather", "reduce_scatter", "allreduce")
LATENCY_NS, LAUNCH_NS = 150_000, 1_500_000
"""Of a TCP message between namespaces and of one round of eight ranks on two cores; seen, not tuned."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="asym8", help="file or catalog name; every pair of GPUs needs a route")
    parser.add_argument("--bytes", default="8MB")
    parser.add_argument("--fastest", type=float, default=480.0, help="Mbit/s of the fastest link")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if (why := network.unavailable()) is not None:
        raise SystemExit(f"emulation: {why}")
    machine = read_topology(args.machine)
    scale = args.fastest * 1e6 / max(link.bytes_per_s for link in machine.links)
    found = run(machine, scale, parse_size(args.bytes), args.repeat)
    print(table(found))
    if args.output:
        documents.write(args.output, json.dumps(found, indent=1))


def scaled(machine: Topology, scale: float) -> Topology:
    """The machine as the network shows it: its rates in real bytes per second of the shaped ports."""
    hop = LATENCY_NS / 2
    links = tuple(replace(e, bytes_per_s=round(e.bytes_per_s * scale / 8), latency_ns=hop) for e in machine.links)
    return replace(machine, name=f"{machine.name}-emulated", links=links)


def run(machine: Topology, scale: float, size: int, repeat: int) -> dict[str, object]:
    """Make plans, build the network, run the ranks in it."""
    shown = scaled(machine, scale)
    count = len(machine.gpus)
    with tempfile.TemporaryDirectory() as name, network.shaped(machine, bits_per_byte_per_s=scale):
        folder = Path(name)
        save_topology(shown, folder / "topology.json")
        solved = {c: synth.solve(shown, c, bytes=size, launch_ns=LAUNCH_NS) for c in COLLECTIVES}
        for collective, one in solved.items():
            plan.save(one.plan, folder / f"{collective}.json")
        asked = {
            "ports": [[0, peer] for peer in range(1, count)],
            "probe_bytes": 2_000_000,
            "bytes": size,
            "collectives": COLLECTIVES,
            "repeat": repeat,
        }
        documents.write(folder / "asked.json", json.dumps(asked))
        environment = dict(os.environ) | {
            "MPIR_CVAR_NOLOCAL": "1",  # or MPICH moves the data through shared memory and the links stay idle
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "SYNTH_PLAN_FILE": ":".join(str(folder / f"{collective}.json") for collective in COLLECTIVES),
            "SYNTH_TOPOLOGY": str(folder / "topology.json"),
            "SYNTH_BYTES": str(size),
            "SYNTH_CACHE": "off",
            "SYNTH_QUIET": "1",
            "SYNTH_TRIAL": "off",  # the plan itself is measured
            "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        }
        words = [str(Path(sys.executable).with_name("mpiexec")), "-launcher", "rsh"]
        words += ["-launcher-exec", str(network.launcher(folder)), "-localhost", f"{network.SUBNET}.254"]
        words += ["-hosts", ",".join(network.address(rank) for rank in range(count)), "-n", str(count), "-ppn", "1"]
        words += [sys.executable, "-m", "tests.bench.emulation.rank"]
        words += [str(folder / "asked.json"), str(folder / "seen.json")]
        subprocess.run(words, env=environment, check=True, timeout=600)
        seen = documents.read(folder / "seen.json")
    for collective, one in solved.items():
        seen["results"][collective] |= {
            "bound": one.bound.seconds,
            "predicted": one.predicted_seconds,
            "rounds": one.plan.rounds,
            "strategy": one.strategy,
        }
    return {"machine": machine.name, "bytes": size, "bits_per_s_per_byte_per_s": scale} | seen


def table(found: dict[str, object]) -> str:
    """For people."""
    results: dict[str, dict[str, object]] = found["results"]  # type: ignore[assignment]
    head = ("bound", "predicted", "planned", "MPI native", "native/planned")
    lines = [f"{'':<15}" + "".join(f"{title:>15}" for title in head) + "  plan"]
    for name, row in results.items():
        planned, native = row["planned"]["median"], row["native"]["median"]  # type: ignore[index]
        times = [format_seconds(float(value)) for value in (row["bound"], row["predicted"], planned, native)]  # type: ignore[arg-type]
        lines.append(
            f"{name:<15}" + "".join(f"{text:>15}" for text in times) + f"{native / planned:>14.2f}x"
            f"  {row['strategy']}, {row['rounds']} rounds"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
