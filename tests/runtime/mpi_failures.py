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


def die(*_):
    os.kill(os.getpid(), 9)


def say(error):
    line = f"rank {rank}: RemoteError after {time.monotonic() - began:.1f} s: {error}"
    (Path(sys.argv[2]) / f"rank{rank}").write_text(line)


def once_more():
    """Everybody is back: a new group of the same ranks works."""
    began = time.monotonic()
    with synth.attach(deadline=20) as ep:
        summed = ep.all_reduce(np.arange(5, dtype=np.float32))
        assert summed.tolist() == (ep.size * np.arange(5)).tolist()
    with (Path(sys.argv[2]) / f"rank{rank}").open("a") as file:
        file.write(f"; again after {time.monotonic() - began:.1f} s")


rank = int(os.environ["PMI_RANK"])
began = time.monotonic()
try:
    if what == "never-starts" and rank == 1:
        import signal

        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the launcher's note that another rank has ended
        time.sleep(4)
        sys.exit(0)
    if what == "never-attaches" and rank == 1:
        from runtime.communicators.mpi_start import start

        start(deadline)
        time.sleep(4)
        os._exit(0)
    ep = synth.attach(deadline=deadline)
    x = np.ones(100_000, dtype=np.float32)
    ep.all_reduce(x)
    half = np.ones(100_000, dtype=np.float16)  # the direct exchange in two rounds: MPI does not add it
    ep.all_reduce(half)
    if rank == 1:
        communicator = ep.communicator
        exchange, finish = communicator.group, communicator._finish
        if what == "dies":
            die()
        if what == "dies-in-a-round":  # its messages are posted, and perhaps some are on their way
            communicator._finish = lambda *given: finish(*given) if given[-1] is None else die()
        if what == "dies-between-rounds":
            communicator.group = lambda *given: exchange(*given) if given[-1] == 0 else die()
        if what in ("stalls", "returns"):
            time.sleep(4)
        if what == "stalls":
            os._exit(0)
    for _ in range(3):
        ep.all_reduce(half)
        ep.all_to_all(x)
    print(f"rank {rank}: finished", flush=True)
except RemoteError as error:
    say(error)
    if what == "returns":
        once_more()
    until = time.monotonic() + 10  # the launcher may end the others as soon as one rank ends without the end of MPI
    while len(list(Path(sys.argv[2]).iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1)
    sys.exit(0)
