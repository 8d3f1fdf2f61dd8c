"""The ranks of a placement: which GPUs, in which order, on how many nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.errors import InputError, TopologyError
from synth.topology import Topology


@dataclass(frozen=True, slots=True)
class Members:
    """Ranks in order, node after node.

    Attributes:
        devices: GPU of each rank.
        nodes: machines with equally many ranks each; 1 where the numbers differ or nothing says which machine.
        warnings: what was noticed on the way.
    """

    devices: tuple[str, ...]
    nodes: int
    warnings: tuple[str, ...] = ()


def members(topology: Topology, ep_size: int | None = None, ranks: Sequence[str] | None = None) -> Members:
    """Choose the ranks of one expert-parallel group.

    Args:
        topology: the machine.
        ep_size: how many ranks; default all. The first so many GPUs in node order.
        ranks: these GPUs instead.

    Raises:
        InputError: the topology has fewer GPUs, or none.
        TopologyError: a rank is not there.
    """
    chosen = tuple(ranks) if ranks is not None else topology.gpus
    node_of = {id: topology.device(id).node or "" for id in chosen}
    order = {node: position for position, node in enumerate(dict.fromkeys(node_of.values()))}
    chosen = tuple(sorted(chosen, key=lambda gpu: order[node_of[gpu]]))
    if not chosen:
        raise TopologyError(f"topology {topology.name}: has no GPU to place experts on", subject=topology.name)
    if ep_size is not None:
        if not 1 <= ep_size <= len(chosen):
            raise InputError(
                f"--ep-size: is {ep_size}; {topology.name} has {len(chosen)} GPUs, so it must be from 1 to "
                f"{len(chosen)}",
                subject="--ep-size",
            )
        chosen = chosen[:ep_size]
    sizes: dict[str, int] = {}
    for id in chosen:
        sizes[node_of[id]] = sizes.get(node_of[id], 0) + 1
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{node or 'unnamed'} has {size}" for node, size in sizes.items())
        return Members(chosen, 1, (f"nodes hold different numbers of ranks ({told}); all ranks count as one node",))
    return Members(chosen, len(sizes))
