"""The examples of deploy/training, as far as a machine without a GPU, torchrun and Slurm allows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.direct import direct_plan
from runtime.place import find_place
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InvalidUsage

FOLDER = Path(__file__).parents[2] / "deploy" / "training"


@pytest.mark.mpi
def test_the_mpiexec_example_runs_a_plan_file(tmp_path):
    plan = direct_plan(Collective.ALLTOALL, 4)
    plans.save(plan, tmp_path / "plan.json")
    # without a topology: the plan names no machine
    done = subprocess.run(
        ["sh", str(FOLDER / "mpiexec.sh")],
        env={
            **os.environ, "RANKS": "4", "PYTHON": sys.executable,
            "MPIEXEC": str(Path(sys.executable).with_name("mpiexec")),
            "SYNTH_TOPOLOGY": "asym8", "SYNTH_PLAN_FILE": str(tmp_path / "plan.json"), "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(FOLDER.parents[1]),
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "alltoall" in done.stdout
    assert "synth: alltoall among 4 ranks: no plan" in done.stderr  # it is for another machine than asym8


@pytest.mark.parametrize("name", ["mpiexec.sh", "torchrun.sh", "slurm.sbatch"])
def test_the_scripts_parse_and_ask_for_what_they_need(name):
    assert subprocess.run(["bash", "-n", str(FOLDER / name)], check=False).returncode == 0
    if name != "mpiexec.sh":
        bare = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": "/nowhere", "SLURM_JOB_ID": "1"}
        done = subprocess.run(["bash", str(FOLDER / name)], env=bare, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "SYNTH_SERVER" in done.stderr


def test_ranks_are_found_under_every_launcher():
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    hydra = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"}
    openmpi = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert find_place(variables={}) is None
    assert (find_place(variables=slurm).rank, find_place(variables=slurm).launcher) == (0, "slurm")
    assert find_place(variables=slurm | torchrun).rank == 5
    assert find_place(variables=slurm | hydra).size == 4
    assert find_place(variables=openmpi).local == 1
    assert find_place(1, 2, {}).launcher == "arguments"
    for wrong in ({"RANK": "8", "WORLD_SIZE": "8"}, {"RANK": "x", "WORLD_SIZE": "8"}):
        with pytest.raises(InvalidUsage):
            find_place(variables=wrong)
    with pytest.raises(InvalidUsage):
        find_place(rank=1)
