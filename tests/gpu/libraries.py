"""One NCCL per process, with a real torch: ``python -m tests.gpu.libraries [ANOTHER LIBNCCL]``; no LD_PRELOAD."""

import ctypes
import json
import sys

import torch

from runtime.communicators import libnccl
from synth.errors import InvalidUsage


def main(another=None):
    torch.cuda.nccl.version()
    before = libnccl._versions()
    found = {"torch": {path: libnccl.spell(version) for path, version in before.items()}}
    from runtime.communicators.nccl4py import Nccl4py

    try:
        binding = libnccl.load_beside_torch("nccl", Nccl4py)
        found["same"] = libnccl.spell(binding.version())
    except InvalidUsage as error:
        found["same refused"] = str(error)
    if another:
        try:
            libnccl.load_beside_torch("another", lambda: ctypes.CDLL(another))
            found["another"] = "was taken"
        except InvalidUsage as error:
            found["another refused"] = str(error)
    print(json.dumps(found), flush=True)
    return 0 if not another or "another refused" in found else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
