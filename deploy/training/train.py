"""A training script that fetches its plans at start-up; the same file for mpiexec, torchrun and Slurm, GPUs or CPUs.

It exchanges numpy arrays, or CuPy's on GPUs; with ``--moe`` it trains a small mixture-of-experts layer with torch.
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
    rows = ep.xp.full((sum(counts), 256), ep.rank, dtype=np.float32)
    for _ in range(3):
        received, received_counts = ep.all_to_all(rows, counts)
        assert (received[:, 0] == ep.xp.asarray(np.repeat(np.arange(ep.size), received_counts))).all()


def train(ep) -> None:  # type: ignore[no-untyped-def]
    """A layer with one expert per rank learns a function."""
    import torch

    torch.manual_seed(ep.rank)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dim = 64
    layer = synth.pytorch.MoELayer(ep, dim, [torch.nn.Linear(dim, dim)], top_k=2).to(device)
    layer.gate.weight.data = ep.broadcast(layer.gate.weight.data, root=0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
    x = torch.randn(512, dim, device=device)
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
