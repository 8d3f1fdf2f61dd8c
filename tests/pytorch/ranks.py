"""What each rank does; ``torchrun -m tests.pytorch.ranks CASE FOLDER ...``. Leaves ``CASE-RANK.json`` in the folder."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import synth
from runtime.pytorch.groups import attach
from runtime.pytorch.interpose import interpose
from synth.errors import InvalidUsage, RemoteError


def ran(ep):
    """What carried the operations out, as ``operation: schedule``."""
    return sorted({f"{operation}: {schedule}" for operation, schedule in ep.stats().operations})


def gloo():
    """Everything a group does, over gloo, without anybody calling init_process_group."""
    ep = synth.attach(deadline=10)
    rank, size = ep.rank, ep.size
    assert ep._communicator.name == "gloo"
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        counts = [(rank + peer) % 3 for peer in range(size)]
        rows = torch.full((sum(counts), 5), rank, dtype=torch.float32).to(dtype)
        got, arrived = ep.all_to_all(rows, counts)
        assert arrived.tolist() == [(peer + rank) % 3 for peer in range(size)]
        assert got[:, 0].tolist() == [float(p) for p in range(size) for _ in range(arrived[p])]
    x = torch.arange(6, dtype=torch.bfloat16) + rank
    total = size * np.arange(6) + size * (size - 1) / 2
    assert ep.all_reduce(x).tolist() == total.tolist()
    assert ep.all_reduce(x.float()).tolist() == total.tolist()
    assert ep.all_reduce(x.float(), op="max").tolist() == (np.arange(6) + size - 1).tolist()
    assert ep.all_gather(x[:1]).tolist() == list(range(size))
    assert ep.all_gather(torch.zeros(0, 4)).shape == (0, 4)
    assert ep.broadcast(x, root=1).tolist() == (np.arange(6) + 1).tolist()
    frozen = np.arange(size * 2)
    frozen.flags.writeable = False
    assert ep.reduce_scatter(frozen).tolist() == (size * np.arange(2 * rank, 2 * rank + 2)).tolist()
    handle = ep.all_reduce(x, wait=False)
    assert handle.wait().tolist() == total.tolist()
    again = synth.attach(deadline=10)  # a second group in the same process
    assert again.all_gather(x[:1]).tolist() == list(range(size))
    names = ran(ep)
    ep.close()
    again.close()
    return {"names": names}


def failing(how):
    """The last rank dies, stalls or gives up inside a collective; the others say what they were told."""
    ep = synth.attach(deadline=3)
    ep.all_reduce(torch.ones(3))
    last = ep.size - 1
    if ep.rank == last:
        if how == "dies":
            leave("failing", {"said": None})
            os._exit(0)
        if how == "stalls":
            time.sleep(8)
            return {"said": None}
        if how == "gives-up":
            ep._communicator.abort("tired of it")
            return {"said": None}
    began = time.monotonic()
    try:
        ep.reduce_scatter(torch.ones(2 * ep.size, 3))  # gloo has none of its own: the direct exchange
    except RemoteError as error:
        return {"said": error.message, "rank": error.rank, "seconds": time.monotonic() - began}
    return {"said": "nothing was noticed"}


def interposing():
    """torch's own call sites, in the default group and in two expert-parallel groups at once."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    own = dist.all_to_all_single
    halves = [dist.new_group(list(range(start, start + size // 2))) for start in (0, size // 2)]
    half = halves[rank // (size // 2)]
    world, ep = attach(deadline=10), attach(half, deadline=10)
    assert (ep.rank, ep.size) == (rank % (size // 2), size // 2)
    assert world.ranks == tuple(f"rank{r}" for r in range(size))

    def even(group, n, value):
        sent = torch.full((n * 3, 2), float(value))
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=group)
        return got[:, 0].tolist()

    with interpose(world), interpose(ep, half):
        assert even(None, size, rank) == even(dist.group.WORLD, size, rank) == [r for r in range(size) for _ in range(3)]
        mates = dist.get_process_group_ranks(half)
        assert even(half, ep.size, rank) == [float(r) for r in mates for _ in range(3)]
        out, back = [rank + 1 + p for p in range(ep.size)], [mates[p] + 1 + ep.rank for p in range(ep.size)]
        got = torch.empty(sum(back), 4, dtype=torch.bfloat16)
        dist.all_to_all_single(got, torch.full((sum(out), 4), rank, dtype=torch.bfloat16), back, out, group=half)
        assert got[:, 0].tolist() == [float(m) for m, n in zip(mates, back, strict=True) for _ in range(n)]
        sent = torch.full((ep.size, 2), float(rank))
        answer = torch.empty_like(sent)
        works = [dist.all_to_all_single(answer, sent, group=half, async_op=True) for _ in range(3)]
        assert all(work.wait() for work in works)
        assert works[-1].is_completed()
        assert answer[:, 0].tolist() == mates
        try:
            interpose(ep, half)
            raise AssertionError("two routes for one process group")
        except InvalidUsage:
            pass
        try:
            interpose(world, half)
            raise AssertionError("other ranks were taken")
        except InvalidUsage:
            pass
        counted = {name: stats.calls for name, stats in ep.stats().operations.items()}
        other = dist.new_group(list(range(size)))
        assert even(other, size, rank) == [r for r in range(size) for _ in range(3)]  # torch's own
        assert counted == {name: stats.calls for name, stats in ep.stats().operations.items()}
    assert dist.all_to_all_single is own
    names, reasons = ran(ep), ep.stats().reasons
    ep.close()
    world.close()
    dist.destroy_process_group()
    return {"names": names, "reasons": reasons}


def leave(case, answer):
    Path(sys.argv[2], f"{case}-{os.environ['RANK']}.json").write_text(json.dumps(answer))


CASES = {"gloo": gloo, "failing": failing, "interposing": interposing}

if __name__ == "__main__":
    leave(sys.argv[1], CASES[sys.argv[1]](*sys.argv[3:]))
