"""Run under mpiexec: parts of a communicator, and a plan whose link classes have parts of their own."""

import os

import numpy as np

from runtime.attach import attach
from runtime.communicators.mpi import MpiCommunicator
from tests.runtime.split_contract import check_split

communicator = MpiCommunicator(deadline=30)
check_split(communicator)
os.environ.update(SYNTH_LINK_CLASSES="on", SYNTH_QUIET="1", SYNTH_TRIAL="off")
ep = attach(communicator=communicator)
for turn in range(2):
    x = np.arange(3 * ep.size) + 100 * ep.rank + turn
    recv, _ = ep.all_to_all(x, counts=np.full((ep.size, ep.size), 3))
    right = [np.arange(3 * ep.rank, 3 * ep.rank + 3) + 100 * origin + turn for origin in range(ep.size)]
    assert np.array_equal(recv, np.concatenate(right))
print(f"right: {ep.stats().reasons['alltoall'].rpartition(', ')[2]}", flush=True)
ep.close()
