"""One rank of ``synth probe --measure``: ``python -m probe.measure.worker OPTIONS``; rank 0 writes the result.

The runtime is reached by name: the probe does not depend on it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from probe.measure.run import Limits, measure
from probe.measure.transport import OverCommunicator
from synth import documents, topology, upper
from synth.errors import InvalidUsage, SynthError

DEADLINE = 30.0
"""Seconds a peer may stay silent."""


def main(options: dict[str, Any]) -> None:
    """Run this rank."""
    upper.load("runtime.lifeline").hold_on()
    place = upper.load("runtime.place").find_place()
    if place is None:
        raise InvalidUsage("probe.measure.worker is started by 'synth probe --measure'")
    opened = upper.load("runtime.communicators.open").open_communicator(options["transport"], place, DEADLINE)
    limits = Limits(seconds=options["seconds"], bytes=options["bytes"])
    machine = topology.load(options["topology"])
    transport = OverCommunicator(opened, limits.bytes)
    found = measure(transport, machine, tuple(options["ranks"]), limits, progress=_say)
    if transport.rank == 0:
        documents.write(Path(options["result"]), found.dumps())
    opened.close()


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(documents.read(sys.argv[1]))
    except SynthError as error:
        print(f"synth: {error.message}", file=sys.stderr)
        sys.exit(1)
