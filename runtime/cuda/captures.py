"""What a thread may ask of CUDA while another thread records a graph."""

from __future__ import annotations

import contextlib
import ctypes

_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""


def tolerate_captures() -> None:
    """Let the calling thread query events while another one captures in CUDA's global mode, as torch.cuda.graph does.

    Without it such a query fails and ends the other thread's capture. Nothing happens where there is no driver.
    """
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
