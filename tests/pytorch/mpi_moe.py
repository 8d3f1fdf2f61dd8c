"""Run under mpiexec: the two-level layer over MPI; prints bytes that crossed nodes and the worst gradient error."""

import sys

import torch

from runtime.attach import attach
from tests.pytorch.experts import NODES, dense, layer

with attach(topology="hgx-h100x4", ranks=NODES["4x2"][: int(sys.argv[1])]) as ep:
    found = layer(ep, 12, torch.float32, None)
    right = dense(ep.size, ep.rank, 12, torch.float32)
    worst = max(float((one.double() - other).abs().max()) for one, other in zip(found[:3], right, strict=True))
    errors = ep.all_gather(torch.tensor([worst]))
    if ep.rank == 0:
        print(f"hops {found[4]}, worst error {float(errors.max()):.1e}")
