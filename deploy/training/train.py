"""A training script that fetches its plans at start-up; the same file for mpiexec (CPU), torchrun and Slurm (GPUs).

On CPUs it exchanges numpy arrays; with torch and GPUs it trains a small mixture-of-experts layer.
"""

import sys

import numpy as np

import synth


def main() -> None:
    """Attach, work, say what ran."""
    with synth.attach(collectives=["alltoall"]) as ep:
        if "--moe" in sys.argv:
            train(ep)
        else:
            exchange(ep)
        if ep.rank == 0:
            print(ep.stats().text())


def exchange(ep) -> None:  # type: ignore[no-untyped-def]
    """Uneven rows to every rank, checked."""
    counts = [(ep.rank + peer) % 4 for peer in range(ep.size)]
    rows = np.full((sum(counts), 256), ep.rank, dtype=np.float32)
    for _ in range(3):
        received, received_counts = ep.all_to_all(rows, counts)
        assert (received[:, 0] == np.repeat(np.arange(ep.size), received_counts)).all()


def train(ep) -> None:  # type: ignore[no-untyped-def]
    """A layer with one expert per rank learns a function."""
    import torch

    from runtime.pytorch.moe import MoELayer

    torch.manual_seed(ep.rank)
    dim = 64
    layer = MoELayer(ep, dim, [torch.nn.Linear(dim, dim)], top_k=2).cuda()
    layer.gate.weight.data = ep.broadcast(layer.gate.weight.data, root=0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
    x = torch.randn(512, dim, device="cuda")
    for step in range(50):
        optimizer.zero_grad()
        loss = (layer(x) - torch.sin(x)).square().mean()
        loss.backward()
        layer.gate.weight.grad = ep.all_reduce(layer.gate.weight.grad) / ep.size
        optimizer.step()
        if step % 10 == 0 and ep.rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
