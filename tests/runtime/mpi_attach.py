"""Run under mpiexec: what a user's script does. Prints what ran on rank 0, and errors of any rank by name."""

import os
import sys

import numpy as np

import synth
from synth.errors import SynthError

if len(sys.argv) > 1:  # a plan file of its own for each rank
    os.environ["SYNTH_PLAN_FILE"] = sys.argv[1 + int(os.environ["PMI_RANK"]) % (len(sys.argv) - 1)]
try:
    with synth.attach() as ep:
        send = np.arange(ep.size * 3, dtype=np.int64) + 100 * ep.rank
        recv, counts = ep.all_to_all(send)
        assert counts.tolist() == [3] * ep.size
        wanted = np.concatenate([np.arange(3) + 3 * ep.rank + 100 * r for r in range(ep.size)])
        assert np.array_equal(recv, wanted)
        names = sorted(schedule for _, schedule in ep.stats().operations)
        print(f"rank {ep.rank}: right, {names[0]}", flush=True)
except SynthError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
