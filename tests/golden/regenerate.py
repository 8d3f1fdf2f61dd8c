"""The golden files: one plan in every format. ``python -m tests.golden.regenerate`` writes them anew."""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path

from synth.cli import main as cli
from synth.cli.export import FORMATS
from synth.collective import Collective
from synth.plan import Plan, save
from synth.topology import Device, DeviceKind, Link, LinkClass, Topology
from tests.plans import chain, direct_alltoall

FOLDER = Path(__file__).parent
SUFFIX = {"msccl-xml": "xml", "msccl-xml-v1": "v1.xml", "mscclpp-json": "mscclpp.json"}


def machine(count: int = 4) -> Topology:
    """GPUs, each joined to each."""
    gpus = [f"n0/gpu{number}" for number in range(count)]
    devices = [Device(id=gpu, kind=DeviceKind.GPU, node="n0") for gpu in gpus]
    links = [
        Link(src=a, dst=b, link_class=LinkClass.NVLINK, bytes_per_s=50e9, latency_ns=700)
        for a, b in permutations(gpus, 2)
    ]
    return Topology(name="mesh", devices=tuple(devices), links=tuple(links))


def plans() -> dict[str, Plan]:
    """A pipeline that adds and spreads, and an exchange."""
    four = machine()
    return {"allreduce": chain(four, Collective.ALLREDUCE), "alltoall": direct_alltoall(four)}


def write(folder: Path) -> list[Path]:
    """Write every golden file into ``folder``."""
    written = []
    for name, plan in plans().items():
        source = folder / f"{name}.plan.json"
        save(plan, source)
        for format in FORMATS:
            target = folder / f"{name}.{SUFFIX[format]}"
            assert cli.main(["export", str(source), "--to", format, "-o", str(target), "--json"]) == 0
            written.append(target)
        written.append(source)
    return written


if __name__ == "__main__":
    json.dump([path.name for path in write(FOLDER)], sys.stdout)
