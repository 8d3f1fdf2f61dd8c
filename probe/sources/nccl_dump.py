"""Asking NCCL itself: it writes its topology XML while a communicator over all GPUs of the machine is made."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from probe.facts import Facts
from probe.sources import nccl_xml
from synth.errors import CaptureError

SECONDS = 120

# runs in its own process, since NCCL reads the variable once and may abort the process that loads it
_SCRIPT = """
import ctypes, glob, importlib.util, os, sys
names = []
spec = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
for folder in (spec.submodule_search_locations or []) if spec else []:
    names += sorted(glob.glob(os.path.join(folder, "lib", "libnccl.so*")))
for name in [*filter(None, [os.environ.get("SYNTH_NCCL_LIBRARY")]), *names, "libnccl.so.2", "libnccl.so"]:
    try:
        library = ctypes.CDLL(name)
        break
    except OSError:
        continue
else:
    sys.exit("no libnccl.so.2; install synth with its extra cuda12, or set SYNTH_NCCL_LIBRARY to its path")
count = int(sys.argv[1])
communicators = (ctypes.c_void_p * count)()
status = library.ncclCommInitAll(communicators, count, None)
for communicator in communicators:
    if communicator:
        library.ncclCommDestroy(ctypes.c_void_p(communicator))
sys.exit(f"ncclCommInitAll failed with status {status}" if status else 0)
"""


def dump(gpus: int) -> str:
    """The XML that NCCL writes for this machine.

    Args:
        gpus: how many GPUs CUDA shows.

    Raises:
        CaptureError: there is no NCCL here, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="synth-nccl-") as folder:
        file = Path(folder) / "topology.xml"
        environment = {**os.environ, "NCCL_TOPO_DUMP_FILE": str(file)}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _SCRIPT, str(gpus)],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CaptureError(f"nccl: did not answer within {SECONDS} s", subject="nccl") from None
        if not file.exists():
            said = " ".join((done.stderr or done.stdout).split()[-30:])
            raise CaptureError(f"nccl: wrote no topology ({said or f'status {done.returncode}'})", subject="nccl")
        return file.read_text(encoding="utf-8", errors="replace")


def read(gpus: int) -> Facts:
    """Facts of NCCL's own dump; errors as :func:`dump`."""
    return nccl_xml.read(dump(gpus), subject="nccl")
