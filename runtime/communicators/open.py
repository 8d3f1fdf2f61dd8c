"""Choosing and opening a transport by name."""

from __future__ import annotations

from importlib.util import find_spec

from runtime.communicators.base import Communicator
from runtime.place import Place
from synth.errors import InvalidUsage

TRANSPORTS = ("nccl", "nccl-cupy", "mpi")


def open_communicator(name: str, place: Place, deadline: float) -> Communicator:
    """Open the transport of this name, or with ``auto`` the first that can work here.

    Raises:
        InvalidUsage: unknown, not installed, or it contradicts the launcher.
        RemoteError: a rank does not arrive before the deadline.
    """
    if name == "auto":
        name = _choose()
    if name == "mpi":
        return _open_mpi(place, deadline)
    raise InvalidUsage(f"transport {name!r}: is not known; must be auto, {' or '.join(TRANSPORTS)}", subject=name)


def _choose() -> str:
    return "mpi"


def _open_mpi(place: Place, deadline: float) -> Communicator:
    if find_spec("mpi4py") is None:
        raise InvalidUsage("transport mpi: mpi4py is not installed; pip install 'synth[mpi]'", subject="mpi")
    from runtime.communicators.mpi import MpiCommunicator

    opened = MpiCommunicator(deadline=deadline)
    if (opened.rank, opened.size) != (place.rank, place.size):
        raise InvalidUsage(
            f"transport mpi: MPI says rank {opened.rank} of {opened.size}, {place.launcher} says {place.rank} of "
            f"{place.size}; start the script with mpiexec"
        )
    return opened
