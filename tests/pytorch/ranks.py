"""What each rank does; ``torchrun -m tests.pytorch.ranks CASE FOLDER ...``. Leaves ``CASE-RANK.json`` in the folder."""

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist

import synth
from synth.errors import InvalidUsage, RemoteError

attach, interpose = synth.pytorch.attach, synth.pytorch.interpose


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


def survive(lost):
    """What a new group of the ranks that are left gives, which meet in torchrun's store as the first did."""
    with synth.attach(rank=int(os.environ["RANK"]), size=lost, deadline=20) as ep:
        return ep.all_reduce(torch.arange(4.0)).tolist()


def failing(how):
    """The last rank dies, stalls or gives up; the others say what they were told, and attach again without it."""

    def die(*_):
        leave("failing", {"said": None})
        os._exit(0)

    last = int(os.environ["WORLD_SIZE"]) - 1
    began = time.monotonic()
    try:
        if how == "dies-before" and int(os.environ["RANK"]) == last:
            die()
        ep = synth.attach(deadline=3)
    except RemoteError as error:
        return {"said": error.message, "rank": error.rank, "seconds": time.monotonic() - began, "again": survive(last)}
    ep.all_reduce(torch.ones(3))
    if ep.rank == last:
        if how == "dies":
            die()
        exchange = ep.communicator.group
        if how == "dies-in-a-round":
            ep.communicator._wait = die
        if how == "dies-between-rounds":
            ep.communicator.group = lambda *given: exchange(*given) if given[-1] == 0 else die()
        if how == "stalls":
            time.sleep(8)
            return {"said": None}
        if how == "gives-up":
            ep._communicator.abort("tired of it")
            return {"said": None}
    began = time.monotonic()
    try:
        for _ in range(2):
            ep.all_reduce(torch.ones(200 * ep.size, dtype=torch.bfloat16))  # in two rounds: gloo does not add it
    except RemoteError as error:
        seconds = time.monotonic() - began
        ep.close()
        return {"said": error.message, "rank": error.rank, "seconds": seconds, "again": survive(last)}
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
        assert (
            even(None, size, rank) == even(dist.group.WORLD, size, rank) == [r for r in range(size) for _ in range(3)]
        )
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
    assert ran(world) == []  # it has no plan, so its calls went to torch
    with interpose(world, always=True):
        assert even(None, size, rank) == [r for r in range(size) for _ in range(3)]
    assert ran(world) == ["alltoall: native"]
    names, reasons = ran(ep), ep.stats().reasons
    ep.close()
    world.close()
    dist.destroy_process_group()
    return {"names": names, "reasons": reasons}


def functional():
    """Functional collectives, eager, with gradients and compiled; what is not covered is torch's own."""
    from torch.distributed import _functional_collectives as funcol
    from torch.distributed._functional_collectives import all_to_all_single_autograd  # before anything is interposed

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    other = dist.new_group(list(range(size)))
    out, back = [rank + 1 + p for p in range(size)], [p + 1 + rank for p in range(size)]
    rows = torch.randn(sum(out), 4, generator=torch.Generator().manual_seed(rank))

    def exchange(group=world):
        """torchtitan's: counts without gradients, then rows with them; the second backwards as well."""
        counts = funcol.wait_tensor(funcol.all_to_all_single(torch.tensor(out), None, None, group=group))
        given = rows.clone().requires_grad_()
        arrived = all_to_all_single_autograd(given, counts.tolist(), out, group)
        (arrived * torch.arange(len(arrived))[:, None]).sum().backward()
        return counts, arrived.detach() + 0, given.grad

    def elsewhere():
        """Everything else goes to torch, whose answers are what they were."""
        lists = [torch.empty(2, 4) for _ in range(size)]
        dist.all_to_all(lists, [rows[p : p + 2].contiguous() for p in range(size)])
        everyone = torch.empty(size * 2)
        dist.all_gather_into_tensor(everyone, torch.full((2,), float(rank)))
        part = torch.empty(2)
        dist.reduce_scatter_tensor(part, torch.arange(size * 2.0) * rank)
        operators = torch.ops._c10d_functional
        gathered = operators.all_gather_into_tensor(torch.full((2,), float(rank)), size, world.group_name)
        scattered = operators.reduce_scatter_tensor(torch.arange(size * 2.0) * rank, "sum", size, world.group_name)
        gathered, scattered = funcol.wait_tensor(gathered), funcol.wait_tensor(scattered)
        return (*lists, everyone, part, gathered, scattered, *exchange(other))

    def compiled():
        """Both forms inside torch.compile, traced whole."""

        @torch.compile(backend="inductor" if shutil.which("g++") else "aot_eager", fullgraph=True)
        def layer(x):
            first = funcol.wait_tensor(funcol.all_to_all_single(x * 2, back, out, world))
            answer = torch.empty_like(x)
            dist.all_to_all_single(answer, first + 1, out, back, group=world)
            return answer * 3

        return (layer(rows),)

    counted = {call.__name__: both_ways(call, world) for call in (exchange, elsewhere, compiled)}
    del os.environ["SYNTH_PLAN_FILE"]
    counted["unplanned"] = both_ways(exchange, world)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(
        "_c10d_functional::all_to_all_single", "CPU"
    )  # the operator is torch's again
    dist.destroy_process_group()
    return {"counted": counted}


def both_ways(call, process_group, **options):
    """What a function gives over torch and over a synth group in its place, and what the group ran."""
    theirs = call()
    ep = attach(process_group, deadline=20, **options)
    with interpose(ep, process_group):
        ours = call()
    for one, other in zip(theirs, ours, strict=True):
        assert torch.equal(one, other)
    counted = {f"{name}: {schedule}": stats.calls for (name, schedule), stats in ep.stats().operations.items()}
    ep.close()
    return counted


def deepspeed():
    """DeepSpeed's MoE layer as it is, forward and backward."""
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.utils import groups

    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(dist.get_rank())
    layer = MoE(8, torch.nn.Linear(8, 8), num_experts=4, ep_size=2, k=2, capacity_factor=2.0)
    layer.set_deepspeed_parallelism()
    x = torch.randn(16, 8)

    def step():
        given = x.clone().requires_grad_()
        torch.manual_seed(3)
        out, _, _ = layer(given)
        out.square().sum().backward()
        return out.detach(), given.grad

    process_group = groups._get_expert_parallel_group("ep_size_2")
    counted = both_ways(step, process_group)
    members = dist.get_process_group_ranks(process_group)
    dist.destroy_process_group()
    return {"version": deepspeed.__version__, "counted": counted, "members": members}


def megatron():
    """Megatron's all_to_all, even and uneven, and its token dispatcher, forward and backward."""
    from megatron.core import __version__
    from megatron.core.tensor_parallel.mappings import all_to_all

    dist.init_process_group("gloo")
    torch.cuda.current_device = lambda: "cpu"  # where Megatron makes its outputs
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD

    def exchange():
        counts = [rank + peer for peer in range(size)]
        uneven = torch.randn(sum(counts), 4, generator=torch.Generator().manual_seed(rank)).requires_grad_()
        out = all_to_all(world, uneven, np.array(counts), np.array(counts))
        (out * torch.arange(len(out))[:, None]).sum().backward()
        even = torch.full((size * 2, 3), float(rank)).requires_grad_()
        back = all_to_all(world, even)
        back.square().sum().backward()
        return out.detach(), uneven.grad, back.detach(), even.grad

    counted = both_ways(exchange, world)
    dispatched = both_ways(lambda: megatron_dispatcher(rank, size), world)
    dist.destroy_process_group()
    return {"version": __version__, "counted": counted, "dispatched": dispatched}


def megatron_dispatcher(rank, size):
    """Tokens to their experts and back through MoEAlltoAllTokenDispatcher; its copies off the GPU are stood in for."""
    from megatron.core.transformer.moe import token_dispatcher
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
    from megatron.core.transformer.transformer_config import TransformerConfig

    def to_host(tensor, as_numpy=False, record_stream=False):
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = to_host

    class Stream:
        def record_event(self):
            return self

        def synchronize(self):
            pass

    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = stream = Stream()
    torch.cuda.current_stream, torch.cuda.stream = lambda: stream, contextlib.nullcontext
    config = TransformerConfig(
        num_layers=1, hidden_size=8, num_attention_heads=1, num_moe_experts=2 * size, moe_router_topk=2,
        moe_token_dispatcher_type="alltoall", add_bias_linear=False,
    )  # fmt: skip
    groups = SimpleNamespace(ep=dist.group.WORLD, expt_tp=None, tp_ep=dist.group.WORLD)
    dispatcher = MoEAlltoAllTokenDispatcher(2, [2 * rank, 2 * rank + 1], config, groups)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(6, 1, 8, generator=generator).requires_grad_()
    probs, chosen = torch.topk(torch.softmax(torch.randn(6, 2 * size, generator=generator), -1), 2)
    routing = torch.zeros(6, 2 * size, dtype=torch.bool).scatter(1, chosen, True)
    probs = torch.zeros(6, 2 * size).scatter(1, chosen, probs).requires_grad_()
    rows, weights = dispatcher.dispatch_preprocess(x, routing, probs)
    rows, weights = dispatcher.token_dispatch(rows, weights)
    rows, per_expert, weights = dispatcher.dispatch_postprocess(rows, weights)
    assert int(per_expert.sum()) == len(rows)
    scale = torch.repeat_interleave(torch.arange(1.0, 3.0) + 2 * rank, per_expert.long())
    rows = dispatcher.combine_preprocess(rows * (weights * scale)[:, None])
    out = dispatcher.combine_postprocess(dispatcher.token_combine(rows))
    out.square().sum().backward()
    return out.detach(), x.grad, probs.grad


def vllm():
    """vLLM's default all-to-all manager; its configuration and the step's metadata are stood in for."""
    import vllm
    from vllm import forward_context
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import all2all

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    alone, everyone = [[r] for r in range(size)], [list(range(size))]
    for name, ranks in (("WORLD", everyone), ("TP", alone), ("PCP", alone), ("DP", everyone), ("EP", everyone)):
        made = parallel_state.GroupCoordinator(ranks, rank, "gloo", use_device_communicator=True, group_name=name)
        setattr(parallel_state, f"_{name}", made)
    parallel = SimpleNamespace(enable_expert_parallel=True)
    all2all.get_current_vllm_config = lambda: SimpleNamespace(parallel_config=parallel)
    manager = all2all.AgRsAll2AllManager(parallel_state.get_ep_group().cpu_group)
    sizes = [3 + r for r in range(size)]
    metadata = SimpleNamespace(get_chunk_sizes_across_dp_rank=lambda: sizes)
    group = parallel_state.get_dp_group()
    ep = attach(group.device_group, deadline=20)
    with (
        synth.pytorch.interpose_vllm(ep, group),
        forward_context.override_forward_context(SimpleNamespace(dp_metadata=metadata)),
    ):
        tokens, weights = torch.full((sizes[rank], 4), float(rank)), torch.full((sizes[rank], 2), rank / 2)
        chosen = torch.full((sizes[rank], 2), rank)
        rows, per_row, experts = manager.dispatch(tokens, weights, chosen)
        right = [float(r) for r in range(size) for _ in range(sizes[r])]
        assert rows[:, 0].tolist() == experts[:, 1].tolist() == (2 * per_row[:, 0]).tolist() == right
        back = manager.combine(rows * (rank + 1))
        assert back[:, 0].tolist() == [rank * size * (size + 1) / 2] * sizes[rank]
        into = manager.combine_into_output(rows, torch.empty(sizes[rank], 4))
        assert into[:, 0].tolist() == [float(rank * size)] * sizes[rank]
    with synth.pytorch.interpose_vllm(attach(group.device_group, deadline=20), group, always=True):
        assert group.all_gatherv(tokens, 0, sizes)[:, 0].tolist() == right
    try:
        group.device_communicator.all_gatherv(tokens)
        raise AssertionError("vLLM's own method is not back")
    except NotImplementedError:
        pass
    counted = {f"{name}: {schedule}": stats.calls for (name, schedule), stats in ep.stats().operations.items()}
    ep.close()
    dist.destroy_process_group()
    return {"version": vllm.__version__, "counted": counted}


def leave(case, answer):
    rank = os.environ.get("RANK") or os.environ["SLURM_PROCID"]
    Path(sys.argv[2], f"{case}-{rank}.json").write_text(json.dumps(answer))


CASES = {
    "gloo": gloo,
    "failing": failing,
    "interposing": interposing,
    "functional": functional,
    "deepspeed": deepspeed,
    "megatron": megatron,
    "vllm": vllm,
}

if __name__ == "__main__":
    leave(sys.argv[1], CASES[sys.argv[1]](*sys.argv[3:]))
