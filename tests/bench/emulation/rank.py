"""One rank on the shaped network: checks the ports, then times planned and native collectives on the same data."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import synth
from synth import documents


def main() -> None:
    asked = documents.read(sys.argv[1])
    rates = {f"{a}:{b}": port_rate(a, b, asked["probe_bytes"]) for a, b in asked["ports"]}
    planned = synth.attach(transport="mpi")
    os.environ["SYNTH_PLAN_FILE"] = ""
    native = synth.attach(transport="mpi")
    results = {}
    for name in asked["collectives"]:
        results[name] = {
            "planned": timed(planned, call(planned, name, asked["bytes"]), asked["repeat"]),
            "native": timed(native, call(native, name, asked["bytes"]), asked["repeat"]),
            "schedule": planned.stats().reasons[name],
        }
    if planned.rank == 0:
        documents.write(sys.argv[2], json.dumps({"bits_per_s": rates, "results": results}))
    planned.close()
    native.close()


def port_rate(a: int, b: int, size: int) -> float:
    """Bit/s of one stream from a to b, everybody else silent."""
    comm, data = MPI.COMM_WORLD, np.ones(size, dtype=np.uint8)
    comm.Barrier()
    began = time.perf_counter()
    if comm.rank == a:
        comm.Send(data, b)
        comm.Recv(data[:1], b)
    elif comm.rank == b:
        comm.Recv(data, a)
        comm.Send(data[:1], a)
    return float(comm.bcast(8 * size / (time.perf_counter() - began), root=a))


def call(group: Any, name: str, size: int) -> Callable[[], None]:
    """A checked collective of ``size`` bytes as the collective defines it."""
    ranks, rank = group.size, group.rank
    floats = size // 4
    part = floats // ranks

    def data(origin: int, count: int) -> np.ndarray:
        return ((np.arange(count) + origin * 13) % 97).astype(np.float32)

    if name == "alltoall":
        wanted = np.concatenate([data(peer, floats)[rank * part : (rank + 1) * part] for peer in range(ranks)])
        mine = data(rank, floats)[: part * ranks]
        return lambda: check(group.all_to_all(mine)[0], wanted)
    if name == "allgather":
        wanted = np.concatenate([data(peer, part) for peer in range(ranks)])
        return lambda: check(group.all_gather(data(rank, part)), wanted)
    total = np.sum([data(peer, part * ranks) for peer in range(ranks)], axis=0, dtype=np.float32)
    if name == "reduce_scatter":
        wanted = total[rank * part : (rank + 1) * part]
        return lambda: check(group.reduce_scatter(data(rank, part * ranks)), wanted)
    return lambda: check(group.all_reduce(data(rank, part * ranks)), total)


def check(received: np.ndarray, wanted: np.ndarray) -> None:
    if not np.array_equal(received, wanted):
        raise SystemExit("wrong data")


def timed(group: Any, run: Callable[[], None], repeat: int) -> dict[str, float]:
    """Median, least and largest seconds of the slowest rank."""
    run()
    seconds = []
    for _ in range(repeat):
        group.health_check()
        began = time.perf_counter()
        run()
        seconds.append(MPI.COMM_WORLD.allreduce(time.perf_counter() - began, op=MPI.MAX))
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


if __name__ == "__main__":
    main()
