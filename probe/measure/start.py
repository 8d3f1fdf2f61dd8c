"""Starting the ranks of a measurement on this machine, one for each GPU."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from probe.findings import finding
from probe.measure.apply import apply, table
from probe.measure.run import Limits, Measurement
from synth import documents, topology, upper
from synth.errors import RemoteError, SynthError
from synth.topology import Topology


def measured(machine: Topology, limits: Limits, *, transport: str = "nccl") -> tuple[Topology, str]:
    """The machine with what could be measured, and a table of it for people.

    What cannot be measured here is a finding, not an error: one GPU has no link to another, and without a transport
    for GPU memory nothing crosses the links.
    """
    ranks = machine.gpus
    if len(ranks) < 2:
        return _skipped(machine, "there is one GPU only, so no route between GPUs to measure"), ""
    try:
        found = run(machine, ranks, limits, transport=transport)
    except SynthError as error:
        return _skipped(machine, f"nothing was measured: {error.message}"), ""
    return apply(machine, ranks, found), table(machine, ranks, found)


def _skipped(machine: Topology, why: str) -> Topology:
    return replace(machine, findings=(*machine.findings, finding("measure-skipped", machine.name, why)))


def run(machine: Topology, ranks: Sequence[str], limits: Limits, *, transport: str) -> Measurement:
    """Start one process per rank and wait for the result.

    Raises:
        SynthError: the runtime is not installed, has no such transport, or a rank failed.
    """
    lifeline = upper.load("runtime.lifeline")
    with tempfile.TemporaryDirectory(prefix="synth-measure-") as folder, contextlib.ExitStack() as started:
        file, result, asked = (Path(folder) / name for name in ("topology.json", "result.json", "options.json"))
        topology.save(machine, file)
        options = {
            "topology": str(file),
            "result": str(result),
            "ranks": list(ranks),
            "seconds": limits.seconds,
            "bytes": limits.bytes,
            "transport": transport,
        }
        documents.write(asked, json.dumps(options))
        # -P: a folder named runtime where the user stands must not win over ours
        worker = [sys.executable, "-P", "-m", "probe.measure.worker", str(asked)]
        processes = [
            started.enter_context(
                lifeline.children(command, environment=_environment(variables, folder), stdout=sys.stderr.fileno())
            )
            for command, variables in _commands(worker, len(ranks), transport)
        ]
        _wait(processes, 2 * limits.seconds + 60)
        if not result.exists():
            raise RemoteError("the ranks ended without a result; their own lines say why")
        return Measurement.loads(result.read_text(encoding="utf-8"))


def _commands(worker: list[str], ranks: int, transport: str) -> list[tuple[list[str], dict[str, str]]]:
    """What to start: one launcher for MPI, one process per rank otherwise."""
    if transport == "mpi":
        return [([*upper.load("runtime.cli.run").launcher(ranks), *worker], {})]
    return [(worker, {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks)}) for r in range(ranks)]


def _environment(variables: dict[str, str], folder: str) -> dict[str, str]:
    own = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        **variables,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # rank i measures GPU i of the topology, which counts by bus id
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")])),
        "SYNTH_RENDEZVOUS": str(Path(folder) / "rendezvous"),
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]], patience: float) -> None:
    """Until all have ended; one that fails ends the wait for the others."""
    until = time.monotonic() + patience
    left = list(processes)
    while left:
        if time.monotonic() > until:
            raise RemoteError(f"the ranks did not finish within {patience:g} s")
        with contextlib.suppress(subprocess.TimeoutExpired):
            left[0].wait(0.2)
        failed = [process.returncode for process in left if process.poll() not in (None, 0)]
        if failed:
            raise RemoteError(f"a rank failed (status {failed[0]}); its own lines say why")
        left = [process for process in left if process.poll() is None]
