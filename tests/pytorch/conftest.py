"""Ranks that torchrun starts on this machine's CPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def need(package: str) -> None:
    """Skip, saying so, where a package is not installed."""
    if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.fixture
def torchrun(tmp_path: Path) -> Callable[..., list[Any]]:
    """Start a case of :mod:`tests.pytorch.ranks` on some ranks; gives what each rank left, by rank."""
    need("torch")

    def run(size: int, case: str, *arguments: object, timeout: float = 120, **environment: str) -> list[Any]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command += ["-m", "tests.pytorch.ranks", case, str(tmp_path), *map(str, arguments)]
        output, status = start(command, timeout, PYTHONPATH=str(ROOT), **environment)
        left = sorted(tmp_path.glob(f"{case}-*.json"))
        assert status == 0, output[-4000:]
        assert len(left) == size, output[-4000:]
        return [json.loads(path.read_text()) for path in left]

    return run


def start(command: list[str], timeout: float, **environment: str) -> tuple[str, int]:
    """Run a launcher to its end, whose ranks end with it: (what all of them said, status)."""
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SYNTH_")}
    with subprocess.Popen(
        command,
        env=clean | quiet | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return output, process.returncode
