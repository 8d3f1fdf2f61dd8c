"""Starting and ending MPI, beside a clock: both wait for every rank, for ever where one has died."""

from __future__ import annotations

import atexit
import ctypes
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from synth.errors import InvalidUsage, RemoteError

state = {"broken": False}
"""Whether a peer was lost: MPI is not ended then."""


def start(deadline: float) -> Any:
    """The mpi4py module, with MPI started.

    ``MPI_Init`` waits for every rank, and mpi4py keeps Python's lock meanwhile; so it is called through ctypes, in a
    thread of its own that can be left behind.

    Raises:
        RemoteError: not every rank started before the deadline.
    """
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Is_finalized():
        raise InvalidUsage("MPI was already shut down in this process; start a new process to attach again")
    if not MPI.Is_initialized():
        library, provided = ctypes.CDLL(_library()), ctypes.c_int()
        arguments = (None, None, ctypes.c_int(MPI.THREAD_MULTIPLE), ctypes.byref(provided))
        thread = threading.Thread(target=library.MPI_Init_thread, args=arguments, daemon=True)
        thread.start()
        thread.join(deadline)
        if thread.is_alive():
            raise RemoteError(f"not every rank started MPI within {deadline:g} s; one died or was never launched")
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)  # or MPI ends this process when another one dies
        atexit.register(_finalize, MPI, deadline)
        _ignore_launcher_notes()
    return MPI


def _ignore_launcher_notes() -> None:
    """Hydra sends SIGUSR1 when a rank has died, and MPICH's handler for it does not return; this process lives on."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _library() -> str:
    """The MPI library that mpi4py has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    found = {line.split()[-1] for line in maps if re.search(r"/libmpi\.so|/libmpi_abi\.so", line)}
    if not found:
        raise InvalidUsage("mpi4py is there, but no MPI library; synth's extra mpi brings one")
    return min(found)


def _finalize(mpi: Any, deadline: float) -> None:
    """End MPI when the process ends, unless a peer is lost: then it would wait for ever."""
    if not state["broken"] and mpi.Is_initialized() and not mpi.Is_finalized():
        thread = threading.Thread(target=ctypes.CDLL(_library()).MPI_Finalize, daemon=True)
        thread.start()
        thread.join(deadline)
