"""Which rank this process is: from explicit arguments, torchrun, Open MPI, MPICH and its kin, or Slurm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from synth.errors import InvalidUsage

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
"""In this order: a job script under Slurm may start torchrun or mpiexec, whose ranks are the ones that count."""


@dataclass(frozen=True, slots=True)
class Place:
    """This process among its peers.

    Attributes:
        rank: from 0.
        size: how many ranks.
        local: rank on this node, the default device.
        launcher: ``torchrun``, ``mpi``, ``slurm`` or ``arguments``.
    """

    rank: int
    size: int
    local: int
    launcher: str


def find_place(
    rank: int | None = None, size: int | None = None, variables: Mapping[str, str] | None = None
) -> Place | None:
    """This process's place, or None where nothing says it.

    Raises:
        InvalidUsage: what is given contradicts itself.
    """
    given = os.environ if variables is None else variables
    if (rank is None) != (size is None):
        raise InvalidUsage("attach: give both rank and size, or neither")
    if rank is not None and size is not None:
        return _checked(rank, size, int(given.get("LOCAL_RANK", rank)), "arguments")
    for launcher, rank_name, size_name, local_name in _LAUNCHERS:
        if rank_name in given and size_name in given:
            try:
                found = [int(given[name]) for name in (rank_name, size_name)]
                local = int(given.get(local_name, found[0]))
            except ValueError:
                raise InvalidUsage(
                    f"{rank_name}={given[rank_name]}, {size_name}={given[size_name]}: must be integers",
                    subject=rank_name,
                ) from None
            return _checked(found[0], found[1], local, launcher)
    return None


def _checked(rank: int, size: int, local: int, launcher: str) -> Place:
    if not 0 <= rank < size:
        raise InvalidUsage(f"rank {rank} of {size}: ranks go from 0 to {max(size - 1, 0)}")
    return Place(rank, size, local, launcher)
