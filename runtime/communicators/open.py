"""Choosing and opening a transport by name."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runtime.communicators.base import Communicator
from runtime.place import Place, find_place
from runtime.rendezvous import VARIABLE as RENDEZVOUS
from runtime.rendezvous import Store, TorchStore, open_store
from synth.errors import InvalidUsage

TRANSPORTS = ("nccl", "nccl-cupy", "mpi", "gloo")


def open_communicator(name: str, place: Place, deadline: float, store: Store | None = None) -> Communicator:
    """Open the transport of this name, or with ``auto`` the first that can work here.

    Args:
        name: of the transport.
        place: this rank.
        deadline: seconds a peer may stay silent.
        store: where the ranks meet; default what the environment says.

    Raises:
        InvalidUsage: unknown, not installed, or it contradicts the launcher.
        RemoteError: a rank does not arrive before the deadline.
    """
    if name == "auto":
        name = _choose(place)
    if name == "mpi":
        return _open_mpi(place, deadline)
    if name in ("nccl", "nccl-cupy"):
        return _open_nccl(name, place, deadline, store)
    if name == "gloo":
        return _open_gloo(place, deadline, store)
    raise InvalidUsage(f"transport {name!r}: is not known; must be auto, {' or '.join(TRANSPORTS)}", subject=name)


def _choose(place: Place) -> str:
    """NCCL where a GPU and CuPy are there; else gloo where the ranks can meet without MPI, else MPI."""
    if find_spec("cupy") is not None:
        cupy: Any = import_module("cupy")
        with contextlib.suppress(Exception):  # no driver, or no device
            if cupy.cuda.runtime.getDeviceCount() > 0:
                return "nccl" if find_spec("nccl") is not None else "nccl-cupy"
    started = find_place() if place.launcher == "arguments" else place  # as when some of torchrun's ranks attach again
    by_torchrun = started is not None and started.launcher == "torchrun"
    meets = by_torchrun or (place.launcher != "mpi" and bool(os.environ.get(RENDEZVOUS)))
    return "gloo" if meets and find_spec("torch") is not None else "mpi"


def _open_nccl(name: str, place: Place, deadline: float, store: Store | None) -> Communicator:
    """NCCL on GPU ``local rank``; beside torch only with the libnccl that torch has loaded."""
    for package in ("cupy", "nccl") if name == "nccl" else ("cupy",):
        if find_spec(package) is None:
            extra = "cuda13" if package == "cupy" else "nccl4py cuda-bindings"
            raise InvalidUsage(f"transport {name}: the package {package} is not installed; pip install {extra}")
    from runtime.communicators.libnccl import load_beside_torch
    from runtime.communicators.nccl import NcclCommunicator

    binding: Any
    if name == "nccl":
        from runtime.communicators.nccl4py import Nccl4py

        binding = load_beside_torch(name, Nccl4py)
    else:
        from runtime.communicators.nccl_cupy import CupyNccl

        binding = load_beside_torch(name, CupyNccl)
    devices = int(import_module("cupy").cuda.runtime.getDeviceCount())
    return NcclCommunicator(binding, place, store or open_store(place, deadline), place.local % devices, deadline)


def _open_gloo(place: Place, deadline: float, store: Store | None) -> Communicator:
    if find_spec("torch") is None:
        raise InvalidUsage("transport gloo: the package torch is not installed; pip install torch", subject="gloo")
    from runtime.communicators.gloo import GlooCommunicator

    meeting = store or open_store(place, deadline)
    if not isinstance(meeting, TorchStore):
        meeting = TorchStore.across(meeting, place, deadline)
    return GlooCommunicator(meeting, place, deadline=deadline)


def _open_mpi(place: Place, deadline: float) -> Communicator:
    if find_spec("mpi4py") is None:
        raise InvalidUsage("transport mpi: mpi4py is not installed; install synth with its extra mpi", subject="mpi")
    from runtime.communicators.mpi import MpiCommunicator

    opened = MpiCommunicator(deadline=deadline)
    if (opened.rank, opened.size) != (place.rank, place.size):
        raise InvalidUsage(
            f"transport mpi: MPI says rank {opened.rank} of {opened.size}, {place.launcher} says {place.rank} of "
            f"{place.size}; start the script with mpiexec"
        )
    return opened
