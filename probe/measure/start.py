"""Starting the ranks of a measurement on this machine, one for each GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
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
    runner, lifeline = upper.load("runtime.cli.run"), upper.load("runtime.lifeline")
    with tempfile.TemporaryDirectory(prefix="synth-measure-") as folder:
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
        command = [*runner.launcher(len(ranks)), sys.executable, "-P", "-m", "probe.measure.worker", str(asked)]
        own = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
        patience = 2 * limits.seconds + 60
        with lifeline.children(command, environment=environment, stdout=sys.stderr.fileno()) as process:
            try:
                status = process.wait(patience)
            except subprocess.TimeoutExpired:
                raise RemoteError(f"the ranks did not finish within {patience:g} s") from None
        if status != 0 or not result.exists():
            raise RemoteError(f"a rank failed (status {status}); its own lines say why")
        return Measurement.loads(result.read_text(encoding="utf-8"))
