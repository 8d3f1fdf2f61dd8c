"""GPU to NIC assignments as the settings that libraries read: one line per rank, and what holds for all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from probe.nics import Use
from synth.errors import CaptureError
from synth.topology import Topology


def write(topology: Topology, uses: Sequence[Use]) -> str:
    """Shell lines: NCCL's and NVSHMEM's lists for the node, and each local rank's own HCA.

    Raises:
        CaptureError: no GPU has a NIC, or NICs have no names.
    """
    if not uses:
        raise CaptureError(f"{topology.name}: has no NIC to assign", subject=topology.name)
    names = {use.nic: topology.device(use.nic).model for use in uses}
    nameless = [nic for nic, name in names.items() if not name]
    if nameless:
        raise CaptureError(
            f"{nameless[0]}: its device name (such as mlx5_0) is not known; the matrix needs its NIC legend",
            subject=nameless[0],
        )
    lines: list[str] = []
    for node in topology.nodes:
        mine = [use for use in uses if topology.device(use.gpu).node == node]
        if not mine:
            continue
        counts = Counter(names[use.nic] for use in mine)
        lines.append(f"# {node}")
        # "=" makes NCCL match whole names: mlx5_1 must not select mlx5_10
        lines.append(f"export NCCL_IB_HCA=={','.join(map(str, counts))}")
        lines.append(f"export NVSHMEM_HCA_PE_MAPPING={','.join(f'{name}:1:{n}' for name, n in counts.items())}")
        for rank, use in enumerate(mine):
            lines.append(f"# local rank {rank} ({use.gpu}, {use.distance.name})")
            lines.append(f'[ "${{LOCAL_RANK:-0}}" = {rank} ] && export UCX_NET_DEVICES={names[use.nic]}:1')
    return "\n".join(lines) + "\n"
