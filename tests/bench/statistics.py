"""What statistics cost: calls with and without, in turns: ``mpiexec -n 2 python -m tests.bench.statistics [BYTES]``.

Prints the median seconds of an all_to_all with known counts and what counting and timing it adds. On a GPU
(``tests/gpu/run_all.py`` runs it there) the time is that of issuing the call, since the device works meanwhile.
"""

import json
import os
import sys
import time
from dataclasses import replace

import numpy as np

import synth


def overhead(ep, x, turns=400, block=10):
    """(median seconds without, median of the differences) of one call.

    A difference is that of two pairs in both orders: what comes second in a pair is faster or slower by itself.

    Args:
        ep: a group.
        x: rows to exchange, equally many for each rank.
        turns: pairs of blocks.
        block: calls in a row, with the host waiting for the device only between blocks.
    """
    runner, communicator = ep._runner, ep._communicator
    counts = np.full((ep.size, ep.size), len(x) // ep.size)
    out = ep.all_to_all(x, counts=counts)[0]
    sources = {on: replace(runner._source, statistics=on) for on in (False, True)}
    plain, extra = [], []
    for turn in range(turns + 20):
        seconds: dict[bool, float] = {}
        for on in (False, True) if turn % 2 else (True, False):
            runner._source = sources[on]
            communicator.gather(b"go")
            began = time.perf_counter()
            for _ in range(block):
                ep.all_to_all(x, counts=counts, out=out)
            seconds[on] = (time.perf_counter() - began) / block
            communicator.synchronize()
        if turn >= 20:
            plain.append(seconds[False])
            extra.append(seconds[True] - seconds[False])
    both = np.reshape(extra[: len(extra) // 2 * 2], (-1, 2)).mean(axis=1)
    return float(np.median(plain)), float(np.median(both))


def cost(ep, x, calls=20000):
    """Seconds that counting adds to a call, by itself: what the runner does for a call that was counted before."""
    runner = ep._runner
    counts = np.full((ep.size, ep.size), len(x) // ep.size)
    ep.all_to_all(x, counts=counts)
    stats, memory = ep.stats(), ep._communicator.memory
    tally = next(iter(stats._tallies.values()))
    name = next(iter(stats.operations))
    began = time.perf_counter()
    for _ in range(calls):
        marks = [memory.now()] if memory.timing(stats.calls(*name)) else None
        found = stats.tally(*name, tally.bytes, tally.program, tally.itemsize)
        found.count()
        if marks is not None:
            marks += [memory.now() for _ in range(2 * len(found.seconds) + 1)]
            stats.timed(found, marks)
    assert runner is not None
    return (time.perf_counter() - began) / calls


def main(size=2**20):
    os.environ.update(SYNTH_QUIET="1", SYNTH_TRIAL="off")
    with synth.attach() as ep:
        x = np.zeros((ep.size, int(size) // ep.size), dtype=np.uint8)
        plain, extra = overhead(ep, x)
        alone = cost(ep, x)
        if ep.rank == 0:
            print(json.dumps({"bytes": int(size), "ranks": ep.size, "transport": ep._communicator.name,
                              "seconds": plain, "added": extra, "share": extra / plain, "cost": alone}))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
