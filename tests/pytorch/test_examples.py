"""The examples of deploy/training, run under torchrun, and under Slurm where it is; plans from a real server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pytorch.conftest import ROOT, need, start
from tests.server.conftest import serve

__all__ = ["serve"]  # a fixture

pytestmark = pytest.mark.slow

FOLDER = ROOT / "deploy" / "training"


@pytest.fixture
def fake_solver():
    """``serve`` runs the real one here."""


@pytest.fixture
def planned(serve, tmp_path):
    """The variables of a job of four ranks on this machine's CPUs, whose plans a server makes."""
    need("torch")
    need("solver")
    return {
        "SYNTH_SERVER": serve().url, "SYNTH_TOPOLOGY": "asym8", "SYNTH_TRIAL": "off", "PYTHONPATH": str(ROOT),
        "SYNTH_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip


def check(output: str) -> None:
    plan = re.search(r"synth: alltoall among 4 ranks: plan (\w+) from server", output)
    assert plan, output
    assert re.search(rf"^alltoall +plan {plan[1]} +300 ", output, re.MULTILINE), output
    losses = [float(loss) for loss in re.findall(r"step \d+: loss ([0-9.]+)", output)]
    assert len(losses) == 5
    assert losses[-1] < 0.8 * losses[0]


def test_the_torchrun_example_trains_on_plans(planned, tmp_path):
    torchrun = tmp_path / "torchrun"  # this Python's, wherever it is
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    output, status = start(["sh", str(FOLDER / "torchrun.sh")], 250, RANKS="4", TORCHRUN=str(torchrun), **planned)
    assert status == 0, output
    check(output)


@pytest.mark.parametrize("meet", ["folder", "server:test"])
def test_the_slurm_example_trains_on_plans(planned, tmp_path, meet):
    if shutil.which("sbatch") is None:
        pytest.skip("Slurm is not installed")
    known = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True, check=False)
    if known.returncode != 0 or not known.stdout.strip():
        pytest.skip("no Slurm controller with an idle node answers")
    here = {"TRAIN": str(FOLDER / "train.py"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    if meet != "folder":
        here["SYNTH_RENDEZVOUS"] = meet
    command = ["sbatch", "--wait", "--nodes=1", "--ntasks-per-node=4", "--gpus-per-node=0"]
    command += [f"--chdir={tmp_path}", f"--output={tmp_path}/job.out", str(FOLDER / "slurm.sbatch")]
    output, status = start(command, 250, **planned, **here)
    said = (tmp_path / "job.out").read_text()
    assert status == 0, output + said
    check(said)
    assert not list(tmp_path.glob(".synth-*"))
