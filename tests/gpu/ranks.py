"""Starting ranks on the GPUs of this machine, several on one where there are too few, and ending all of them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SAFE = {  # NVLink multicast stays off, also for what these programs start
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


def gpu_reason():
    """Why GPU tests cannot run here, or None."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "no GPU is here"
        import nccl.core  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    except Exception as error:  # the driver's own errors
        return f"no GPU is here ({type(error).__name__})"
    return None


def head_and_tail(log, most=5000):
    """The beginning and the end of a log: a crash prints its stack first, and much may follow."""
    half = most // 2
    return log if len(log) <= most else f"{log[:half]}\n[{len(log) - most} characters]\n{log[-half:]}"


def launch(size, phase, *arguments, transport="nccl", timeout=200, **environment):
    """Run ``tests.gpu.worker PHASE`` on ``size`` ranks; gives (statuses, lines of JSON each rank left, log)."""
    with tempfile.TemporaryDirectory(prefix="synth-gpu-") as folder:
        processes, logs = [], []
        for rank in range(size):
            log = open(Path(folder) / f"log{rank}", "w+")  # noqa: SIM115
            logs.append(log)
            variables = {
                **os.environ, **SAFE,
                "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                "SYNTH_RENDEZVOUS": f"{folder}/meet", "SYNTH_TRANSPORT": transport, "SYNTH_QUIET": "1",
                "SYNTH_TRIAL": "off",  # plans are tested, not chosen
                "SYNTH_LEAVE": f"{folder}/answer{rank}", "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                "PYTHONFAULTHANDLER": "1", "NCCL_MULTI_RANK_GPU_ENABLE": "1", **environment,
            }  # fmt: skip
            library = os.environ.get("SYNTH_TEST_NCCL")
            if library:
                variables["LD_PRELOAD"] = library
            command = [sys.executable, "-m", "tests.gpu.worker", phase, *map(str, arguments)]
            processes.append(
                subprocess.Popen(command, env=variables, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
            )
        until = time.monotonic() + timeout
        statuses = []
        for process in processes:
            try:
                statuses.append(process.wait(max(until - time.monotonic(), 0.1)))
            except subprocess.TimeoutExpired:
                statuses.append("timeout")
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = []
        for rank, log in enumerate(logs):
            log.seek(0)
            content = log.read()
            log.close()
            if content.strip():
                content = content.partition("\nExtension modules:")[0]  # what a crash lists is of no use
                text.append(f"--- rank {rank}\n{head_and_tail(content)}")
        answers = []
        for rank in range(size):
            path = Path(folder) / f"answer{rank}"
            answers.append([json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [])
        return statuses, answers, "\n".join(text)
