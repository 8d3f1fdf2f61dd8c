"""Send a node's topology to the server: ``python -m synth.client.report TOPOLOGY.json``, as the probe's unit does.

The server and the token come from the environment (:mod:`synth.client.environment`). Exit status as for every command:
0 sent, 1 the server did not take it, 2 the file or the environment cannot be used.
"""

from __future__ import annotations

import sys

from synth import topology
from synth.client.client import Client
from synth.client.environment import Environment
from synth.errors import InputError, SynthError


def report(path: str, environment: Environment) -> str:
    """Send one file and say in one line what came of it.

    Raises:
        InputError: the file is no topology of exactly one node, or no server is named.
        SynthError: the server did not take it.
    """
    machine = topology.load(path)
    if len(machine.nodes) != 1:
        raise InputError(f"{path}: describes {len(machine.nodes)} nodes; a report describes one", subject=path)
    answer = Client.from_environment(environment).put_node_topology(machine.nodes[0], machine)
    change = "changed" if answer["changed"] else "unchanged"
    return f"{answer['name']}: {change}, {answer['findings']} findings, fingerprint {answer['fingerprint'][:12]}"


def main(arguments: list[str]) -> int:
    """Run the command."""
    if len(arguments) != 1:
        print("usage: python -m synth.client.report TOPOLOGY.json", file=sys.stderr)
        return 2
    try:
        print(report(arguments[0], Environment.read()))
    except SynthError as error:
        print(f"synth: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
