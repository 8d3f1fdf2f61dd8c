"""A synth group with the ranks of one of torch's process groups, such as an expert-parallel group."""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from typing import Any

from runtime.attach import attach as attach_ranks
from runtime.attach import read_deadline, read_source
from runtime.communicators.open import open_communicator
from runtime.group import Group
from runtime.place import Place
from runtime.rendezvous import TorchStore
from synth.errors import InvalidUsage


def attach(
    process_group: Any = None, *, transport: str | None = None, deadline: float | None = None, **options: Any
) -> Group:
    """Join the synth group of the same ranks, in the same order, as a process group of torch.

    Every rank of the process group calls it, and no other rank has to; ranks meet in torch's own store. Where
    ``SYNTH_TOPOLOGY`` or ``SYNTH_RANKS`` names the devices of the whole job by global rank, those of this process
    group's ranks are taken.

    Args:
        process_group: of ``torch.distributed``; None for the default one.
        transport: as :func:`runtime.attach.attach`; ``auto`` takes NCCL where there is a GPU and gloo otherwise.
        deadline: seconds a peer may stay silent.
        options: others of :func:`runtime.attach.attach`: ``topology``, ``ranks``, ``bytes``, ``collectives``.

    Raises:
        InvalidUsage: ``torch.distributed`` is not initialized, or this rank is not in the process group.
        RemoteError: a rank does not arrive before the deadline.
    """
    distributed: Any = import_module("torch.distributed")
    if not distributed.is_available() or not distributed.is_initialized():
        raise InvalidUsage("torch.distributed is not initialized; call init_process_group() first, or synth.attach()")
    rank, size = distributed.get_rank(process_group), distributed.get_world_size(process_group)
    if rank < 0:
        raise InvalidUsage(f"global rank {distributed.get_rank()} is not in this process group")
    members = distributed.get_process_group_ranks(process_group or distributed.group.WORLD)
    seconds = deadline if deadline is not None else read_deadline()
    if options.get("ranks") is None:
        options["ranks"] = devices_of(members, distributed.get_world_size(), options.get("topology"))
    name = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
    store = TorchStore(distributed.distributed_c10d._get_default_store(), "torch-default").under(f"synth/{name}")
    place = Place(rank, size, _device(), "torchrun")
    chosen = transport or os.environ.get("SYNTH_TRANSPORT", "auto")
    return attach_ranks(communicator=open_communicator(chosen, place, seconds, store), deadline=seconds, **options)


def devices_of(members: list[int], world: int, topology: Any = None) -> tuple[str, ...] | None:
    """The devices of some global ranks, where the environment names those of all; None where it does not."""
    source = read_source(topology)
    everyone = source.ranks or (source.topology.gpus if source.topology is not None else ())
    if not everyone:
        return None
    if len(everyone) < world:
        return everyone if len(everyone) == len(members) else None
    return tuple(everyone[member] for member in members)


def _device() -> int:
    """CUDA's number of the GPU this process works on."""
    cuda: Any = import_module("torch").cuda
    return int(cuda.current_device()) if cuda.is_available() else int(os.environ.get("LOCAL_RANK", 0))
