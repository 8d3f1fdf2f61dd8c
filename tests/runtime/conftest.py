import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.communicators.local import LocalWorld

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT.parent / "shared" / "data" / "vectors"


@pytest.fixture
def in_threads():
    """Run a function of a communicator on several ranks, each a thread; gives the results, raises the first error."""

    def go(size, function, *, deadline=20.0, world=None):
        world = world or LocalWorld(size, deadline=deadline)
        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(function, world.communicator(rank)) for rank in range(size)]
            concurrent.futures.wait(futures)
        return [future.exception() or future.result() for future in futures]

    return go


@pytest.fixture
def mpiexec():
    """Run a script of this folder on several MPI ranks and give what happened; everything it starts ends with it."""
    program = Path(sys.executable).with_name("mpiexec")
    if not program.exists():
        pytest.skip("mpiexec of the mpich wheel is not installed")

    def go(size, script, *arguments, timeout=120, **environment):
        command = [str(program), "-disable-auto-cleanup", "-n", str(size), sys.executable]
        command += [str(Path(__file__).with_name(script)), *map(str, arguments)]
        return subprocess.run(
            command,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", **environment},
            start_new_session=True,
        )

    return go
