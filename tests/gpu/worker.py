"""What each rank of a GPU test does; ``python -m tests.gpu.worker PHASE ARGUMENTS``, started by tests.gpu.ranks."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import cupy
import numpy as np

import synth
from runtime.checked import counts_for, given, wanted
from runtime.communicators import Call
from runtime.communicators.open import open_communicator
from runtime.elements import Element
from runtime.executor import execute
from runtime.place import find_place
from synth import plan as plans
from synth.collective import Collective
from synth.errors import RemoteError
from synth.plan.lowering import Lowering
from tests.gpu import groups, operations

WIDTHS = {"float32": 4, "bfloat16": 2, "int8": 1, "float16": 2}


def leave(**answer):
    with open(os.environ["SYNTH_LEAVE"], "a") as file:
        file.write(json.dumps(answer) + "\n")


def skewed(collective, size, pairs, rng, most):
    from tests.runtime.expected import draw_counts

    return np.asarray(draw_counts(collective, size, rng, most, pairs))


def plans_phase(folder, *options):
    """Every plan of a folder, several sizes and types, eager and as graphs, and the native collective."""
    quick = "quick" in options
    began = time.monotonic()
    communicator = open_communicator(os.environ["SYNTH_TRANSPORT"], find_place(), 25.0)
    leave(connect=time.monotonic() - began)
    rank, memory = communicator.rank, communicator.memory
    rng = np.random.default_rng(5)
    for path in sorted(Path(folder).glob("*.json")):
        plan = plans.load(path)
        size, root = plan.members, plan.root or 0
        lowering = Lowering(plan, rank)
        pairs = ()
        if plan.collective is Collective.SENDRECV:
            pairs = tuple(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True))
        cases = [("float32", 4 * 8 * 512, "even", True), ("bfloat16", 4_000_012, "even", False)]
        if not quick:
            cases += [("int8", 7 * 8, "even", False), ("float32", 0, "even", False)]
            cases += [("float16", 0, "uneven", False), ("int8", 0, "uneven", True)]
        wrong, started = 0, time.monotonic()
        for name, bytes, kind, graph in cases:
            element = Element(name, WIDTHS[name])
            if kind == "uneven":
                counts = skewed(plan.collective, size, pairs, rng, 5000)
            else:
                counts = counts_for(plan.collective, size, bytes, element.itemsize, pairs=pairs)
            source = cupy.asarray(given(plan.collective, counts, rank, root, element))
            right = cupy.asarray(wanted(plan.collective, counts, rank, root, element, size))
            target = cupy.full_like(right, 0xA5)
            program = lowering.program(counts, align=max(1, 16 // element.itemsize))

            def run(program=program, source=source, target=target, element=element):
                with memory.stream_of(source):
                    execute(communicator, program, source, target, element)

            run()
            communicator.synchronize()
            wrong += int((target != right).sum())
            if graph:
                from runtime.cuda.handles import record

                recording = record(run, source, memory, communicator.follow)
                for _ in range(2):
                    target.fill(0x5A)
                    recording.replay()
                    communicator.synchronize()
                    wrong += int((target != right).sum())
            target.fill(0x5A)
            with memory.stream_of(source):
                if communicator.native(Call(plan.collective, counts, source, target, element, root=root)):
                    communicator.synchronize()
                    wrong += int((target != right).sum())
        leave(plan=path.stem, cases=len(cases), rounds=len(program.rounds), wrong=wrong,
              seconds=time.monotonic() - started)  # fmt: skip
    communicator.close()


def group_phase(folder):
    """The public API on CuPy arrays: handles, counts, plan file, errors, recording, a second group, statistics."""
    os.environ["SYNTH_PLAN_FILE"] = f"{folder}/ndv2x1-alltoall.json"
    began = time.monotonic()
    ep = synth.attach(deadline=25, collectives=["alltoall"])
    attached = time.monotonic() - began
    counts = [(ep.rank + peer) % 5 for peer in range(ep.size)]
    send = cupy.arange(sum(counts) * 3, dtype=cupy.int16).reshape(-1, 3) + 100 * ep.rank
    recv, recv_counts = ep.all_to_all(send, counts)
    first = time.monotonic() - began
    assert recv_counts.tolist() == [(peer + ep.rank) % 5 for peer in range(ep.size)]
    at = 0
    for peer in range(ep.size):
        theirs = [(peer + other) % 5 for other in range(ep.size)]
        begin, rows = sum(theirs[: ep.rank]), theirs[ep.rank]
        right = cupy.arange(sum(theirs) * 3, dtype=cupy.int16).reshape(-1, 3)[begin : begin + rows] + 100 * peer
        assert bool((recv[at : at + rows] == right).all())
        at += rows
    x = cupy.arange(1000, dtype=cupy.float32) + ep.rank
    total = ep.size * cupy.arange(1000) + ep.size * (ep.size - 1) / 2
    handles = [ep.all_reduce(x, wait=False) for _ in range(4)]
    assert all(bool((handle.wait() == total).all()) for handle in handles)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        y = ep.all_reduce(x + 1)
        assert bool((y == total + ep.size).all())
    matrix = np.full((ep.size, ep.size), 4)
    rows = cupy.zeros((4 * ep.size, 8), dtype=cupy.float32)
    recording = ep.record(lambda: ep.all_to_all(rows, counts=matrix)[0], rows)
    for turn in range(3):
        rows.fill(10 * ep.rank + turn)
        result = recording.replay()
        assert result[::4, 0].get().tolist() == [10 * peer + turn for peer in range(ep.size)]
    try:
        ep.all_to_all(rows, [-1] * ep.size)
        raise SystemExit("a negative count was taken")
    except synth.errors.InvalidArgument:
        pass
    ep.health_check()
    other = synth.attach(deadline=25)
    z = other.all_reduce(x)
    assert bool((z == total).all())
    other.close()
    assert bool((ep.all_gather(x[:1]).get() == np.arange(ep.size)).all())
    seconds = ep.trial("alltoall", cupy.zeros((8 * ep.size, 1000), dtype=cupy.float32), repeat=2)
    names = sorted(f"{a}: {b}" for a, b in ep.stats().operations)
    ep.close()
    leave(attach=attached, first=first, names=names, trial=seconds, reasons=ep.stats().reasons)


def order_phase():
    """Results are ordered on the caller's stream: read at once, many times, with a gather before and without."""
    ep = synth.attach(deadline=25)
    rank, size, communicator = ep.rank, ep.size, ep._communicator
    ep.prepare("allreduce")
    matrix = np.full((size, size), 1)
    streams = {"default": cupy.cuda.Stream.null, "other": cupy.cuda.Stream(non_blocking=True)}
    for name, stream in streams.items():
        for n in (10, 5000):
            for way in ("known", "gather", "synchronized"):
                wrong, seen, used = 0, [], set()
                for turn in range(25):
                    with stream:
                        x = cupy.full(n * size, rank + turn, dtype=cupy.float32)
                        if way == "gather":
                            communicator.gather(b"12345678")
                        y = ep.all_reduce(x)
                        z = ep.all_to_all(x.reshape(size, n), counts=matrix)[0]
                        used.add(communicator.memory.stream.ptr == stream.ptr)
                        if way == "synchronized":
                            communicator.synchronize()
                        right = size * turn + size * (size - 1) / 2
                        bad = int((y != right).sum()) + int((z[:, 0] != cupy.arange(size) + turn).sum())
                        if bad:
                            seen += [turn, bad, right, float(y[0]), float(y[-1]), z[:, 0].tolist()]
                        wrong += bad > 0
                leave(stream=name, n=n, way=way, wrong=wrong, own=[str(u) for u in used], seen=seen[:12])
    leave(operations=[str(key) for key in ep.stats().operations])
    ep.close()


def failure_phase(what):
    """The last rank is lost; the others must say so, and work again among themselves."""
    deadline, last = 3.0, int(os.environ["WORLD_SIZE"]) - 1
    rank = int(os.environ["RANK"])
    if what == "before-connect" and rank == last:
        os._exit(9)
    began = time.monotonic()
    try:
        if what == "before-connect":
            synth.attach(deadline=deadline)
            raise SystemExit("attached without a rank")
        ep = synth.attach(deadline=25)
        x = cupy.ones(300_000, dtype=cupy.float32)
        rows = cupy.ones((last + 1, 1000), dtype=cupy.float32)
        matrix = np.ones((last + 1, last + 1), dtype=np.int64)
        for _ in range(2):
            ep.all_to_all(rows, counts=matrix)
            ep.all_reduce(x)
        ep.health_check()
        ep._communicator.deadline = deadline
        if what == "in-capture" and rank != last:
            recording = ep.record(lambda: ep.all_to_all(rows, counts=matrix)[0], rows)
        elif what == "in-capture":
            ep.record(lambda: ep.all_to_all(rows, counts=matrix)[0], rows)
        ep.health_check()
        if rank == last:
            if what == "stalls":
                time.sleep(15)
                os._exit(9)
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        if what == "in-capture":
            recording.replay()
        else:
            ep.all_to_all(rows, counts=matrix)
        cupy.cuda.runtime.deviceSynchronize()  # a script that waits for the GPU only, not for the group
        synced = time.monotonic() - began
        ep.all_reduce(x)
        ep.health_check()
        raise SystemExit("nothing was noticed")
    except RemoteError as error:
        seconds = time.monotonic() - began
        answer = {"what": what, "seconds": seconds, "rank": error.rank, "round": error.round, "message": str(error)}
        if what != "before-connect":
            answer["synced"] = synced if "synced" in dir() else None
    os.environ.update(WORLD_SIZE=str(last), SYNTH_RENDEZVOUS=os.environ["SYNTH_RENDEZVOUS"] + "-again")
    again = time.monotonic()
    ep = synth.attach(deadline=25)
    assert float(ep.all_reduce(cupy.ones(10))[0]) == last
    ep.close()
    leave(**answer, again=time.monotonic() - again)
    os._exit(0)


def torch_phase():
    """Tensors and streams, autograd, a layer that trains with gradients equal to the dense computation, interposing."""
    import torch

    torch.cuda.set_device(0)
    torch.manual_seed(7)
    ep = synth.attach(deadline=25)
    rank, size = ep.rank, ep.size
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.float32):
        rows = (torch.arange(size * 2 * 8, device="cuda").reshape(-1, 8) % 8 + rank).to(dtype)
        recv, counts = ep.all_to_all(rows)
        right = torch.cat([(torch.arange(size * 2 * 8, device="cuda").reshape(-1, 8) % 8 + peer)
                           [2 * rank : 2 * rank + 2] for peer in range(size)]).to(dtype)  # fmt: skip
        assert torch.equal(recv.view(torch.uint8), right.view(torch.uint8)), dtype
        assert counts.tolist() == [2] * size
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.full((1000,), float(rank), device="cuda", dtype=torch.bfloat16)
        y = ep.all_reduce(x)
    side.synchronize()
    assert y[0].item() == sum(range(size))

    from runtime.pytorch.moe import MoELayer

    dim, per_rank, k = 16, 2, 2
    torch.manual_seed(1)
    everything = [torch.nn.Linear(dim, dim).cuda() for _ in range(per_rank * size)]
    layer = MoELayer(ep, dim, everything[per_rank * rank : per_rank * (rank + 1)], k).cuda()
    tokens = [torch.randn(5 + r, dim, generator=torch.Generator().manual_seed(r)).cuda() for r in range(size)]
    x = tokens[rank].clone().requires_grad_()
    out = layer(x)
    out.square().sum().backward()
    # the dense computation: every rank's tokens through every expert, here
    gate = layer.gate.weight.detach().clone().requires_grad_()
    dense = [torch.nn.Linear(dim, dim).cuda() for _ in everything]
    for copy, expert in zip(dense, everything, strict=True):
        copy.load_state_dict(expert.state_dict())
    inputs = [t.clone().requires_grad_() for t in tokens]
    loss = 0
    for r, t in enumerate(inputs):
        scores = torch.softmax(t @ gate.T, -1)
        weights, indices = torch.topk(scores, k, -1)
        outs = torch.stack([expert(t) for expert in dense], 1)
        mixed = (outs.gather(1, indices.unsqueeze(2).expand(-1, -1, dim)) * weights.unsqueeze(2)).sum(1)
        loss = loss + mixed.square().sum()
        if r == rank:
            assert torch.allclose(mixed, out, atol=1e-5)
    loss.backward()
    worst = (x.grad - inputs[rank].grad).abs().max().item()
    for own, copy in zip(layer.experts, dense[per_rank * rank : per_rank * (rank + 1)], strict=True):
        worst = max(worst, (own.weight.grad - copy.weight.grad).abs().max().item())
    gate_grad = ep.all_reduce(layer.gate.weight.grad)
    worst = max(worst, (gate_grad - gate.grad).abs().max().item())
    assert worst < 1e-3, worst
    optimizer = torch.optim.Adam(layer.parameters(), 1e-2)
    goal = torch.sin(tokens[rank] * 2)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = (layer(tokens[rank]) - goal).square().mean()
        loss.backward()
        layer.gate.weight.grad = ep.all_reduce(layer.gate.weight.grad) / size
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses

    import torch.distributed as dist

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29511"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    with synth.pytorch.interpose(ep, always=True):
        sent = torch.full((size * 3, 4), float(rank), device="cuda")
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        assert got[:, 0].tolist() == [float(r) for r in range(size) for _ in range(3)]
        work = dist.all_to_all_single(got, sent + 1, async_op=True)
        work.wait()
        assert got[:, 0].tolist() == [r + 1.0 for r in range(size) for _ in range(3)]
    dist.destroy_process_group()
    ep.close()
    leave(gradient_error=worst, loss_first=losses[0], loss_last=losses[-1], torch=torch.__version__)


PHASES = {
    "plans": plans_phase,
    "group": group_phase,
    "failure": failure_phase,
    "torch": torch_phase,
    "order": order_phase,
    **{
        name: lambda *arguments, phase=phase: phase(*arguments, leave)
        for name, phase in (
            ("fixed", operations.fixed_phase),
            ("classes", operations.classes_phase),
            ("registered", operations.registered_phase),
            ("trial", operations.trial_phase),
            ("statistics", operations.statistics_phase),
            ("experts", groups.experts_phase),
            ("graphs", groups.graphs_phase),
            ("segments", groups.segments_phase),
        )
    },
}

if __name__ == "__main__":
    cupy.cuda.Device(0).use()
    PHASES[sys.argv[1]](*sys.argv[2:])
