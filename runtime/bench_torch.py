"""torch.distributed's own collectives on the arrays of ``synth bench``, over a process group of the same ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runtime.buffers import HostMemory
from runtime.communicators import Call, Communicator
from runtime.rendezvous import own_address
from synth.collective import Collective
from synth.errors import InputError

_ADDRESS_BYTES = 256


def load() -> None:
    """Import torch, which has to come before NCCL is opened: both use the libnccl that torch brings.

    Raises:
        InputError: it is not installed.
    """
    if find_spec("torch") is None:
        raise InputError("--schedules: torch is not installed; install PyTorch or leave torch out")
    import_module("torch.distributed")


@contextlib.contextmanager
def process_group(communicator: Communicator) -> Iterator[None]:
    """A default process group of torch over a communicator's ranks: gloo on host memory, NCCL on GPUs."""
    distributed: Any = import_module("torch.distributed")
    patience = timedelta(seconds=communicator.deadline)
    options = {"timeout": patience, "wait_for_workers": False}
    store = None
    if communicator.rank == 0:
        store = distributed.TCPStore(own_address(), 0, communicator.size, is_master=True, **options)
    said = b"" if store is None else f"{store.host}:{store.port}".encode()
    host, _, port = communicator.gather(said.ljust(_ADDRESS_BYTES))[0].decode().strip().rpartition(":")
    if store is None:
        store = distributed.TCPStore(host, int(port), communicator.size, is_master=False, **options)
    backend = "gloo" if isinstance(communicator.memory, HostMemory) else "nccl"
    distributed.init_process_group(
        backend, store=store, rank=communicator.rank, world_size=communicator.size, timeout=patience
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def torch_call(communicator: Communicator, call: Call) -> Callable[[], Any]:
    """What torch does for a call; a default process group is open."""
    torch: Any = import_module("torch")
    distributed, size = torch.distributed, call.element.itemsize
    kind = getattr(torch, call.element.name)
    source, target = (torch.as_tensor(data).view(torch.uint8) for data in (call.source, call.target))
    counts, rank = call.counts, communicator.rank
    match call.collective:
        case Collective.ALLTOALL:
            out, back = (counts[rank] * size).tolist(), (counts[:, rank] * size).tolist()
            return lambda: distributed.all_to_all_single(target, source, back, out)
        case Collective.ALLGATHER:
            return lambda: distributed.all_gather_into_tensor(target, source)
        case Collective.REDUCE_SCATTER:
            return lambda: distributed.reduce_scatter_tensor(target.view(kind), source.view(kind))
        case Collective.ALLREDUCE:

            def all_reduce() -> None:
                target.copy_(source)
                distributed.all_reduce(target.view(kind))

            return all_reduce
        case Collective.BROADCAST:

            def broadcast() -> None:
                if rank == call.root:
                    target.copy_(source)
                distributed.broadcast(target, call.root)

            return broadcast
        case Collective.REDUCE:
            scratch = torch.empty_like(source)

            def reduce() -> None:
                scratch.copy_(source)
                distributed.reduce(scratch.view(kind), call.root)
                if rank == call.root:
                    target.copy_(scratch)

            return reduce
        case Collective.SENDRECV:
            parts = source.split((counts[rank] * size).tolist()), target.split((counts[:, rank] * size).tolist())
            moves = [
                distributed.P2POp(move, part, peer)
                for move, sides in zip((distributed.isend, distributed.irecv), parts, strict=True)
                for peer, part in enumerate(sides)
                if len(part)
            ]

            def send_receive() -> None:
                for work in distributed.batch_isend_irecv(moves):
                    work.wait()

            return send_receive
