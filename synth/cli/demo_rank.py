"""One of the demo's workers: what a training script does, with every received byte checked.

Started by ``synth demo`` under mpiexec; ``synth.attach()`` finds server, topology and demand in the environment.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import synth
from synth import documents, upper
from synth.collective import matrix_from_document

if TYPE_CHECKING:
    from runtime.attach import Group

REPEATS = 3


def main() -> None:
    """Run both collectives with plans and without, and leave what rank 0 saw in the file named by ``argv[1]``."""
    upper.load("runtime.lifeline").hold_on()
    bytes_per_pair = matrix_from_document(documents.read(os.environ["SYNTH_DEMAND"]))
    planned = synth.attach(collectives=("alltoall", "allreduce"))
    results = _run(planned, bytes_per_pair)
    reasons = dict(planned.stats().reasons)
    schedules = sorted(f"{operation}: {schedule}" for operation, schedule in planned.stats().operations)
    planned.close()
    for variable in ("SYNTH_SERVER", "SYNTH_PLAN_FILE"):
        os.environ.pop(variable, None)
    os.environ["SYNTH_CACHE"], os.environ["SYNTH_QUIET"] = "off", "1"
    native = synth.attach()
    for name, result in _run(native, bytes_per_pair).items():
        results[name]["native_seconds"] = result["seconds"]
        results[name]["wrong_bytes"] += result["wrong_bytes"]
    if native.rank == 0:
        documents.write(sys.argv[1], json.dumps({"results": results, "reasons": reasons, "schedules": schedules}))
    native.close()


def _run(group: Group, bytes_per_pair: np.ndarray) -> dict[str, dict[str, Any]]:
    counts = np.asarray(bytes_per_pair, dtype=np.int64)
    return {"alltoall": _alltoall(group, counts), "allreduce": _allreduce(group, int(counts.sum(axis=1).max()) // 4)}


def _alltoall(group: Group, counts: np.ndarray) -> dict[str, Any]:
    mine = np.concatenate([_tokens(group.rank, peer, int(counts[group.rank, peer])) for peer in range(group.size)])
    expected = np.concatenate([_tokens(peer, group.rank, int(counts[peer, group.rank])) for peer in range(group.size)])
    return _timed(group, lambda: group.all_to_all(mine, counts[group.rank])[0], expected)


def _tokens(origin: int, target: int, count: int) -> np.ndarray:
    """Bytes that only this pair has at these places."""
    return ((np.arange(count, dtype=np.int64) * 7 + origin * 31 + target * 17) % 251).astype(np.uint8)


def _allreduce(group: Group, elements: int) -> dict[str, Any]:
    def gradient(rank: int) -> np.ndarray:
        return ((np.arange(elements, dtype=np.int64) + rank * 13) % 97).astype(np.float32)  # sums are exact

    mine = gradient(group.rank)
    expected = np.zeros(elements, dtype=np.float32)
    for rank in range(group.size):
        expected += gradient(rank)
    return _timed(group, lambda: group.all_reduce(mine), expected)


def _timed(group: Group, call: Callable[[], np.ndarray], expected: np.ndarray) -> dict[str, Any]:
    seconds, wrong = [], 0
    for _ in range(REPEATS):
        group.health_check()  # everybody starts together
        began = time.perf_counter()
        received = call()
        seconds.append(time.perf_counter() - began)
        wrong += int(np.count_nonzero(received.view(np.uint8) != expected.view(np.uint8)))
    everyone = group.all_reduce(np.array([wrong], dtype=np.int64))
    return {"seconds": statistics.median(seconds), "wrong_bytes": int(everyone[0]), "bytes": int(expected.nbytes)}


if __name__ == "__main__":
    main()
