"""Run under mpiexec: one rank misbehaves, the others must say so within the deadline.

Arguments: what happens, and a folder where each rank leaves a line (the launcher may drop output once a rank died).
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import synth
from synth.errors import RemoteError

what, deadline = sys.argv[1], 1.5
rank = int(os.environ["PMI_RANK"])
began = time.monotonic()
try:
    if what == "never-starts" and rank == 1:
        import signal

        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the launcher's note that another rank has ended
        time.sleep(4)
        sys.exit(0)
    if what == "never-attaches" and rank == 1:
        from runtime.communicators.mpi import start

        start(deadline)
        time.sleep(4)
        os._exit(0)
    ep = synth.attach(deadline=deadline)
    x = np.ones(100_000, dtype=np.float32)
    ep.all_reduce(x)
    if what == "dies" and rank == 1:
        os.kill(os.getpid(), 9)
    if what == "stalls" and rank == 1:
        time.sleep(4)
        os._exit(0)
    for _ in range(3):
        ep.all_to_all(x)
    print(f"rank {rank}: finished", flush=True)
except RemoteError as error:
    line = f"rank {rank}: RemoteError after {time.monotonic() - began:.1f} s: {error}"
    (Path(sys.argv[2]) / f"rank{rank}").write_text(line)
    time.sleep(1)  # the launcher may end the others as soon as one rank ends without the end of MPI
    sys.exit(0)
