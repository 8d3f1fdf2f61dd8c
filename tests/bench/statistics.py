"""What statistics cost: calls with and without, in turns: ``mpiexec -n 2 python -m tests.bench.statistics [BYTES]``.

Prints the median seconds of an all_to_all with known counts, what counting and timing it adds, the noise of that, and
what counting and timing take by themselves. On a GPU (``tests/gpu/run_all.py`` runs it there) the time is that of
issuing the call, since the device works meanwhile.
"""

import json
import os
import sys
import time
from dataclasses import replace

import numpy as np

import synth


def overhead(ep, x, turns=300, block=10):
    """Medians of the seconds of one call: without, what statistics add, and what a second one without differs by.

    Each turn has a block of each of the three, in an order drawn anew, the same on all ranks; the last is the noise.

    Args:
        ep: a group.
        x: rows to exchange, equally many for each rank.
        turns: how often.
        block: calls in a row, with the host waiting for the device only between blocks.
    """
    runner, communicator = ep._runner, ep._communicator
    counts = np.full((ep.size, ep.size), len(x) // ep.size)
    out = ep.all_to_all(x, counts=counts)[0]
    sources = [replace(runner._source, statistics=on) for on in (False, True, False)]
    seconds = np.empty((3, turns))
    orders = np.random.default_rng(0)
    for turn in range(-10, turns):
        for kind in orders.permutation(3):
            runner._source = sources[kind]
            communicator.gather(b"go")
            began = time.perf_counter()
            for _ in range(block):
                ep.all_to_all(x, counts=counts, out=out)
            seconds[kind, turn] = (time.perf_counter() - began) / block  # the first turns are written over
            communicator.synchronize()
    plain, counted, again = np.median(seconds, axis=1).tolist()
    return plain, counted - plain, again - plain


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
        plain, extra, noise = overhead(ep, x)
        alone = cost(ep, x)
        if ep.rank == 0:
            found = {"bytes": int(size), "ranks": ep.size, "transport": ep.communicator.name, "seconds": plain}
            print(json.dumps({**found, "added": extra, "noise": noise, "share": extra / plain, "cost": alone}))


if __name__ == "__main__":
    main(*sys.argv[1:])
