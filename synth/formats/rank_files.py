"""A rank order in the files that launchers read.

- Slurm: one host name per rank, for ``SLURM_HOSTFILE`` with ``--distribution=arbitrary``.
- MPI: a rankfile with the host and slot of each rank (Open MPI).
- torchrun: per node, in node order, the ``CUDA_VISIBLE_DEVICES`` under which local ranks follow the order. torchrun
  numbers ranks node after node, so it can follow an order only where each node's ranks are consecutive.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.errors import InputError
from synth.topology import Topology
from synth.topology.model import DeviceKind


def slurm_hostfile(topology: Topology, order: Sequence[str]) -> str:
    """One line per rank: its node."""
    return "".join(f"{_node(topology, gpu)}\n" for gpu in order)


def mpi_rankfile(topology: Topology, order: Sequence[str]) -> str:
    """``rank R=NODE slot=S``; the slot is the GPU's place on its node."""
    place = local_places(topology)
    return "".join(f"rank {rank}={_node(topology, gpu)} slot={place[gpu]}\n" for rank, gpu in enumerate(order))


def torchrun_nodes(topology: Topology, order: Sequence[str]) -> str:
    """One line per node in rank order: ``NODE NPROC CUDA_VISIBLE_DEVICES``.

    Raises:
        InputError: ranks of one node are not consecutive.
    """
    place = local_places(topology)
    nodes: dict[str, list[str]] = {}
    last = None
    for gpu in order:
        node = _node(topology, gpu)
        if node != last and node in nodes:
            raise InputError(
                f"torchrun: ranks of {node} are not consecutive in this order; use the Slurm or MPI file", subject=node
            )
        nodes.setdefault(node, []).append(str(place[gpu]))
        last = node
    return "".join(f"{node} {len(places)} {','.join(places)}\n" for node, places in nodes.items())


def local_places(topology: Topology) -> dict[str, int]:
    """Place of each GPU among its node's GPUs, by PCI bus id where all have one, as CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    by_node: dict[str, list[str]] = {}
    for device in topology.devices:
        if device.kind is DeviceKind.GPU:
            by_node.setdefault(device.node or topology.name, []).append(device.id)
    place: dict[str, int] = {}
    for gpus in by_node.values():
        buses = [topology.device(gpu).pci for gpu in gpus]
        if all(buses):
            gpus = [gpu for _, gpu in sorted(zip(map(str, buses), gpus, strict=True))]
        place |= {gpu: position for position, gpu in enumerate(gpus)}
    return place


def megatron_groups(groups: int, size: int) -> dict[str, list[list[int]]]:
    """Rank lists as Megatron builds them, in the new numbering: experts across a group, data across groups."""
    return {
        "expert_model_parallel": [list(range(group * size, (group + 1) * size)) for group in range(groups)],
        "expert_data_parallel": [list(range(place, groups * size, size)) for place in range(size)],
    }


def _node(topology: Topology, gpu: str) -> str:
    return topology.device(gpu).node or topology.name
