import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.communicators.local import LocalWorld
from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective
from synth.topology import catalog
from tests.runtime import fake_gpu

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


@pytest.fixture
def untold(monkeypatch):
    """No plan, server, topology or setting in the environment; plans are used untried."""
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_CACHE", "SYNTH_REGISTER", "SYNTH_STATS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")
    monkeypatch.setenv("SYNTH_TRIAL", "off")


@pytest.fixture
def on_gpus(in_threads, monkeypatch):
    """Run a function of a communicator on ranks that have a fake GPU each; gives the results and the hub."""

    def go(size, function, *, deadline=20.0, **options):
        fake_gpu.install(monkeypatch, size)
        world = fake_gpu.FakeWorld(size, deadline, **options)
        results = in_threads(size, lambda opening: function(opening()), world=world)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results, world.hub

    return go


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    """Ranks of two nodes, whose plan has edges of two link classes."""
    machine = catalog.build("hgx-h100x2")
    plan = direct_plan(Collective.ALLTOALL, 16).with_(ranks=machine.gpus, topology=machine.fingerprint)
    plans.save(plan, tmp_path / "plan.json")
    monkeypatch.setenv("SYNTH_PLAN_FILE", str(tmp_path / "plan.json"))
    monkeypatch.setenv("SYNTH_TOPOLOGY", "hgx-h100x2")
    monkeypatch.setenv("SYNTH_LINK_CLASSES", "on")
