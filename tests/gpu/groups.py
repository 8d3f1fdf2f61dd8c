"""What torch's process groups and mixtures of experts in two levels do on a device; a phase of tests.gpu.worker."""

import os
import time

import numpy as np

import synth
from runtime.schedules import Operation
from synth.collective import Collective
from synth.errors import InvalidUsage


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


def graphs_phase(leave):
    """Recordings of torch's tensors, and graphs that torch captures itself, in CUDA's global mode."""
    import torch

    torch.cuda.set_device(0)
    ep = synth.attach(deadline=25)
    size, matrix = ep.size, np.full((ep.size, ep.size), 3)
    rows = torch.zeros(3 * size, 4, device="cuda")
    recording = ep.record(lambda: ep.all_to_all(rows, counts=matrix)[0], rows)
    time.sleep(0.2)
    ep._communicator.synchronize()  # the stream that recorded is no longer there
    for turn in range(3):
        rows.fill_(10 * ep.rank + turn)
        assert recording.replay()[::3, 0].tolist() == [10 * peer + turn for peer in range(size)], turn
    leave(recorded=True)
    x = torch.zeros(4000, dtype=torch.int16, device="cuda")  # NCCL adds no such type: the fused kernel does
    once = ep.record(lambda: ep.all_reduce(ep.all_reduce(x)), x)
    filled = [torch.full((4000,), 7, dtype=torch.int16, device="cuda") for _ in range(20)]  # takes what is free
    x.fill_(1)
    assert once.replay()[-1].item() == size * size
    assert all(bool((one == 7).all()) for one in filled), "a graph wrote into memory that was given away"
    leave(chained=True)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        ep.all_reduce(x)
    side.synchronize()
    ep.all_reduce(x)  # an event for the watchdog
    with torch.cuda.graph(graph, stream=side):
        total = ep.all_reduce(x)
        time.sleep(0.3)  # the watchdog looks meanwhile
    ep.all_reduce(torch.zeros(400_000, dtype=torch.int16, device="cuda"))  # needs larger scratch
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert total[-1].item() == 3 * size, total[-1]
    del graph  # NCCL cannot end before
    ep.close()
    leave(captured=True)


def segments_phase(leave):
    """Tensors in torch's expandable segments: moved eagerly, refused in a graph."""
    import torch

    torch.cuda.set_device(0)
    ep = synth.attach(deadline=25)
    ep._runner.ready(Operation(Collective.ALLTOALL)).forced = "direct"
    rows = torch.full((ep.size * 100_000, 4), float(ep.rank), device="cuda")
    matrix = np.full((ep.size, ep.size), 100_000)
    for _ in range(3):
        got = ep.all_to_all(rows, counts=matrix)[0]
        assert got[::100_000, 0].tolist() == list(range(ep.size))
    refused = ""
    try:
        ep.record(lambda: ep.all_to_all(rows, counts=matrix)[0], rows)
    except InvalidUsage as error:
        refused = str(error)
    leave(refused=refused)
    assert "virtual memory" in refused
    got = ep.all_to_all(rows + 1, counts=matrix)[0]
    assert got[::100_000, 0].tolist() == [peer + 1 for peer in range(ep.size)]
    ep.close()
