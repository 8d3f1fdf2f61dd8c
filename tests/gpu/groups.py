"""What torch's process groups and mixtures of experts in two levels do on a device; a phase of tests.gpu.worker."""

import os

import synth


def experts_phase(leave):
    """Groups over torch's process groups, unmodified calls in two of them, tokens that cross to a node once."""
    import torch
    import torch.distributed as dist

    from tests.pytorch.experts import NODES, dense, layer

    torch.cuda.set_device(0)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29513"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    halves = [dist.new_group(list(range(start, start + size // 2))) for start in (0, size // 2)]
    half = halves[rank // (size // 2)]
    ep = synth.pytorch.attach(half, deadline=25)
    assert ep._communicator.name.startswith("nccl"), ep._communicator.name
    mates = dist.get_process_group_ranks(half)
    with synth.pytorch.interpose(ep, half, always=True):
        sent = torch.full((ep.size * 3, 4), float(rank), device="cuda")
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=half)
        assert got[:, 0].tolist() == [float(mate) for mate in mates for _ in range(3)]
        out, back = [rank + 1 + p for p in range(ep.size)], [mates[p] + 1 + ep.rank for p in range(ep.size)]
        uneven = torch.empty(sum(back), 4, dtype=torch.bfloat16, device="cuda")
        rows = torch.full((sum(out), 4), rank, dtype=torch.bfloat16, device="cuda")
        dist.all_to_all_single(uneven, rows, back, out, group=half)
        assert uneven[:, 0].tolist() == [float(m) for m, n in zip(mates, back, strict=True) for _ in range(n)]
        work = dist.all_to_all_single(got, sent + 1, group=half, async_op=True)
        work.wait()
        assert got[:, 0].tolist() == [mate + 1.0 for mate in mates for _ in range(3)]
    ep.close()
    whole = synth.pytorch.attach(deadline=25, topology="hgx-h100x4", ranks=NODES["4x2"][:size])
    errors = {}
    for dtype in (torch.float32, torch.bfloat16):
        for two_level in (False, True):
            found = layer(whole, 24, dtype, two_level, "cuda")
            right = dense(size, rank, 24, dtype)
            worst = max(
                float((one.double().cpu() - other).abs().max() / other.abs().max().clamp(min=1e-9))
                for one, other in zip(found[:3], right, strict=True)
            )
            assert found[4] == 1 + two_level
            assert worst < (1e-4 if dtype is torch.float32 else 0.05), (dtype, two_level, worst)
            errors[f"{dtype} {1 + two_level}"] = worst
    whole.close()
    dist.destroy_process_group()
    leave(nodes=list(whole.nodes), errors=errors)
