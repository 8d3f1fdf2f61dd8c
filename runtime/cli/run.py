"""``synth run``: carry a plan out on this machine, with real processes and checked data."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runtime.lifeline import children
from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.check import find_in_catalog
from synth.cli.inputs import read_topology
from synth.collective import matrix_from_document
from synth.errors import DemandError, InputError, InvalidPlan, InvalidUsage, RemoteError
from synth.plan import Plan
from synth.plan.sizes import demand_of
from synth.simulator import simulate
from synth.units import format_bytes, format_seconds, parse_size
from synth.verifier import verify

DTYPES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "int64": 8}
MOST_RANKS = 128


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="plan document")
    parser.add_argument("--bytes", metavar="N", default="1MiB", help="size, as the collective defines it; default 1MiB")
    parser.add_argument("--demand", metavar="FILE", help='bytes per pair, {"bytes": [[N x N]]}, for alltoall')
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--repeat", type=int, default=5, metavar="K", help="timed repetitions; the median counts")
    parser.add_argument("--topology", metavar="TOPO", help="for the prediction; found in the catalog when left out")
    parser.add_argument("--transport", choices=["mpi"], default="mpi", help="mpi: processes of this machine")
    parser.add_argument("--deadline", type=float, default=30.0, metavar="S", help="seconds a rank may stay silent")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for everything")


def run(args: argparse.Namespace) -> Answer:
    """Start the ranks, wait for them, say what they found."""
    plan = plans.load(args.plan)
    broken = verify(plan)
    if broken:
        raise InvalidPlan(f"{args.plan}: {broken[0].message}; 'synth check' lists all {len(broken)} violations")
    if len(plan.ranks) > MOST_RANKS:
        raise InputError(f"{args.plan}: has {len(plan.ranks)} ranks; at most {MOST_RANKS} are started on one machine")
    size, matrix = parse_size(args.bytes, subject="--bytes"), _demand(args.demand, plan)
    found = _start(args, plan, size, matrix)
    predicted = _predict(args.topology, plan, size, matrix)
    ok = found["wrong_bytes"] == 0 and not found["native_wrong_bytes"]
    document = {
        "ok": ok,
        "wrong_bytes": found["wrong_bytes"],
        "seconds": found["seconds"],
        "predicted_seconds": predicted,
        "native_seconds": found["native_seconds"],
        "plan": plan.digest,
        "ranks": len(plan.ranks),
        "bytes": size,
        "dtype": args.dtype,
        "transport": found["transport"],
    }
    native = found["native_seconds"]
    text = (
        f"{plan.collective.value} of {format_bytes(size)} among {len(plan.ranks)} ranks over {found['transport']}: "
        f"{'every byte is right' if ok else str(found['wrong_bytes']) + ' bytes are WRONG'}\n"
        f"measured here   {format_seconds(found['seconds'])} (processes sharing this machine)\n"
        f"native here     {'none' if native is None else format_seconds(native)}\n"
        f"predicted there {'unknown; give --topology' if predicted is None else format_seconds(predicted)}"
    )
    return Answer(document, text, 0 if ok else 1)


def _demand(path: str | None, plan: Plan) -> np.ndarray | None:
    if path is None:
        return None
    matrix = matrix_from_document(documents.read(path), subject=path)
    if plan.collective.value != "alltoall" or len(matrix) != plan.members:
        raise DemandError(f"{path}: a byte matrix of {len(matrix)} ranks does not go with this plan", subject=path)
    return matrix.astype(np.int64)


def _predict(topology: str | None, plan: Plan, size: int, matrix: np.ndarray | None) -> float | None:
    machine = read_topology(topology) if topology else find_in_catalog(plan)
    if machine is None:
        return None
    demand = demand_of(plan, None if matrix is not None else size, matrix)
    return simulate(plan, machine, demand).seconds


def _start(args: argparse.Namespace, plan: Plan, size: int, matrix: np.ndarray | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="synth-run-") as folder:
        file = Path(folder) / "plan.json"
        plans.save(plan, file)
        result = Path(folder) / "result.json"
        options = {
            "bytes": size,
            "dtype": args.dtype,
            "itemsize": DTYPES[args.dtype],
            "repeat": max(args.repeat, 1),
            "demand": None if matrix is None else matrix.tolist(),
            "transport": args.transport,
            "deadline": args.deadline,
            "result": str(result),
        }
        asked = Path(folder) / "options.json"
        documents.write(asked, json.dumps(options))
        # -P: a folder named runtime where the user stands must not win over this package
        command = [*launcher(len(plan.ranks)), sys.executable, "-P", "-m", "runtime.worker", str(file), str(asked)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": module_path()}
        return found_by(command, environment, result, args.timeout)


def found_by(command: Sequence[str], environment: Mapping[str, str], result: Path, timeout: float) -> dict[str, Any]:
    """Start ranks, wait for them, and read the result file that rank 0 leaves; nothing outlives the call.

    Raises:
        RemoteError: they take longer than ``timeout`` seconds, or one fails.
    """
    with children(command, environment=environment, stdout=sys.stderr.fileno()) as process:
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RemoteError(f"the ranks did not finish within {timeout:g} s (--timeout)") from None
    if status != 0 or not result.exists():
        raise RemoteError(f"a rank failed (status {status}); its own lines above say why")
    found: dict[str, Any] = documents.read(result)
    return found


def launcher(ranks: int) -> list[str]:
    """The command that starts local ranks: mpiexec beside this Python, or on the path.

    Raises:
        InvalidUsage: there is none.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None:
        raise InvalidUsage("mpiexec is not installed; synth's extra mpi brings one")
    return [program, "-n", str(ranks)]


def module_path() -> str:
    """Where the ranks find this very installation, before anything in the current folder."""
    own = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
