"""What may be asked of CUDA while a graph is recorded, by this thread or by another one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from importlib import import_module
from typing import Any

from synth.errors import InvalidUsage

GRAPH_REGISTER = "NCCL_GRAPH_REGISTER"
"""NCCL's own variable: ``0`` keeps it from registering memory when a graph is recorded."""
_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""


def tolerate_captures() -> None:
    """Let the calling thread query events while another one captures in CUDA's global mode, as torch.cuda.graph does.

    Without it such a query fails and ends the other thread's capture. Nothing happens where there is no driver.
    """
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))


def check_host_may_wait(what: str) -> None:
    """Raise where the caller records a graph, with CuPy or torch: the host cannot wait for the GPU then.

    Raises:
        InvalidUsage: it does; nothing was enqueued, and the recording is as it was.
    """
    cupy: Any = import_module("cupy")
    torch: Any = sys.modules.get("torch")
    by_torch = torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if by_torch or cupy.cuda.get_current_stream().is_capturing():
        raise InvalidUsage(
            f"a graph is being recorded, and {what} needs the host: make the call once before, and pass counts="
        )


def check_not_virtual(*pointers: int) -> None:
    """Raise where an array that a graph's messages begin or end in is CUDA's virtual memory, which NCCL can register.

    NCCL registers what it can when a graph is recorded. Scratch is plain memory, which it cannot, and calls that find
    the one and the other hang (eight ranks on an H200, NCCL 2.32.3).

    Raises:
        InvalidUsage: one is.
    """
    if os.environ.get(GRAPH_REGISTER) == "0":
        return
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    for pointer in filter(None, pointers):
        handle = ctypes.c_uint64()
        if driver.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(pointer)) == 0:
            driver.cuMemRelease(handle)
            raise InvalidUsage(
                "a graph is being recorded, and an array lies in CUDA's virtual memory (torch's expandable segments or "
                f"NCCL's allocator), which NCCL would register in part: start all ranks with {GRAPH_REGISTER}=0, "
                "or take other memory"
            )
