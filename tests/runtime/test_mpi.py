"""Real processes under mpiexec."""

import json
import time

import pytest

from runtime.direct import direct_plan
from synth import plan as plans
from synth.collective import Collective, Demand
from synth.topology import catalog
from tests.runtime.conftest import VECTORS

pytestmark = pytest.mark.mpi

COLLECTIVES = [c.value for c in Collective]


def solved_plans(folder, machine, seed=1):
    """Plans of the project's own solver for every collective."""
    portfolio = pytest.importorskip("solver.portfolio")
    topology = catalog.build(machine)
    paths = []
    for collective in Collective:
        size = len(topology.gpus)
        demand = Demand(
            collective=collective,
            ranks=size,
            bytes=64_000_000,
            root=3 if collective.rooted else None,
            pairs=((0, 5), (5, 0), (2, 7), (1, 4)) if collective is Collective.SENDRECV else (),
        )
        paths.append(folder / f"{machine}-{collective.value}.json")
        plans.save(portfolio.solve(topology, demand, seed=seed).plan, paths[-1])
    return paths


@pytest.mark.parametrize("machine", ["asym8", "ndv2x1"])
def test_eight_ranks_execute_solved_plans(mpiexec, tmp_path, machine):
    done = mpiexec(8, "mpi_cases.py", *solved_plans(tmp_path, machine), timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split()[1::3]) == sorted(COLLECTIVES)


def test_eight_ranks_execute_plans_of_another_implementation(mpiexec, tmp_path):
    names = ["asym8-allreduce", "ndv2x1-alltoall", "ndv2x1-alltoallv"]
    if not (VECTORS / f"{names[0]}.json").exists():
        pytest.skip("the shared plan vectors are not here")
    paths = []
    for name in names:
        document = json.loads((VECTORS / f"{name}.json").read_text())["plan"]
        paths.append(tmp_path / f"{name}.json")
        plans.save(plans.from_document(document), paths[-1])
    done = mpiexec(8, "mpi_cases.py", *paths)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("ok ") == 3


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("dies", 1),
        ("dies-in-a-round", 1),
        ("dies-between-rounds", 1),
        ("stalls", 1),
        ("never-attaches", 1),
        ("never-starts", None),
    ],
)
def test_a_lost_rank_is_named_within_the_deadline(mpiexec, tmp_path, what, names):
    for _ in range(3):  # on a loaded machine hydra now and then ends the survivors too, before any of them can speak
        began = time.monotonic()
        done = mpiexec(3, "mpi_failures.py", what, tmp_path, timeout=60)
        assert time.monotonic() - began < 20
        lines = [path.read_text() for path in tmp_path.iterdir()]
        if lines or "Killed (signal 9)" not in done.stdout:
            break
    assert len(lines) == 2, done.stdout + done.stderr[-2000:]
    if names is not None:
        assert all(f"rank {names} did not answer" in line or f"rank {names} was lost" in line for line in lines), lines
    assert all(float(line.split("after ")[1].split(" s")[0]) < 8 for line in lines)


def test_after_a_failure_everybody_attaches_again(mpiexec, tmp_path):
    mpiexec(3, "mpi_failures.py", "returns", tmp_path, timeout=60)
    lines = sorted(path.read_text() for path in tmp_path.iterdir())
    assert len(lines) == 3, lines
    assert all("; again after " in line for line in lines), lines
    assert "rank 1 did not answer" in lines[0]


def test_ranks_with_different_plans_fall_back_or_are_told(mpiexec, tmp_path):
    paths = []
    for seed in (1, 2):
        paths.append(tmp_path / f"{seed}.json")
        plans.save(direct_plan(Collective.ALLTOALL, 4).with_(solver={"seed": seed}), paths[-1])
    done = mpiexec(4, "mpi_attach.py", *paths)
    assert done.stdout.count("right, native") == 4, done.stdout + done.stderr
    assert done.stderr.count("synth: alltoall among 4 ranks: no plan: alltoall: rank 0 has plan") == 1
    done = mpiexec(4, "mpi_attach.py", *paths, SYNTH_FALLBACK="error")
    assert done.stdout.count("UnmatchedGroup: alltoall: rank 0 has plan") == 4, done.stdout + done.stderr


def test_a_server_that_is_down_stops_nobody(mpiexec, tmp_path):
    machine = {"SYNTH_TOPOLOGY": "asym8", "SYNTH_SERVER": "http://127.0.0.1:9", "SYNTH_CACHE": str(tmp_path)}
    done = mpiexec(8, "mpi_attach.py", SYNTH_TIMEOUT="1", **machine)
    assert done.stdout.count("right, native") == 8, done.stdout + done.stderr
    assert done.stderr.count("synth: alltoall among 8 ranks: no plan") == 1


def test_a_plan_file_is_used_under_mpiexec(mpiexec, tmp_path):
    plan = direct_plan(Collective.ALLTOALL, 4).with_(solver={"seed": 7})
    plans.save(plan, tmp_path / "plan.json")
    file = str(tmp_path / "plan.json")
    done = mpiexec(4, "mpi_attach.py", SYNTH_PLAN_FILE=file, SYNTH_TRIAL="off")
    assert done.stdout.count(f"right, plan {plan.digest[:12]}") == 4, done.stdout + done.stderr
    done = mpiexec(4, "mpi_attach.py", SYNTH_PLAN_FILE=file)
    (line,) = [line for line in done.stderr.splitlines() if "trial at 96 B: " in line]
    assert all(f"{name} " in line for name in ("native", "direct", f"plan {plan.digest[:12]}"))
    used = line.rpartition("; ")[2].removesuffix(" is used")
    assert done.stdout.count(f"right, {used}") == 4, done.stdout + done.stderr  # on all ranks


def test_outputs_over_inputs_and_fixed_capacity(mpiexec):
    done = mpiexec(3, "mpi_operations.py", SYNTH_QUIET="1")
    assert done.stdout.count("right: direct native, 6 dropped") == 3, done.stdout + done.stderr[-3000:]
