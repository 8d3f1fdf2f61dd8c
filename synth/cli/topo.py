"""``synth topo``: list, show, merge, degrade and compare topologies."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from synth import documents, topology
from synth.cli.answer import Answer
from synth.cli.inputs import read_topology
from synth.topology import Topology, catalog
from synth.topology.degrade import parse_factor


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the catalog's machines")
    show = actions.add_parser("show", help="one topology")
    show.add_argument("topology", metavar="TOPO")
    merge = actions.add_parser("merge", help="join nodes into a cluster")
    merge.add_argument("topologies", metavar="FILE", nargs="+")
    merge.add_argument("--name", default="cluster")
    merge.add_argument("--fabric", default="fabric", metavar="ID", help="switch that joins the NICs; 'none' for none")
    degrade = actions.add_parser("degrade", help="make links dead or slower")
    degrade.add_argument("topology", metavar="TOPO")
    degrade.add_argument(
        "--link", action="append", required=True, metavar="A:B=FACTOR", help="0 means dead; repeatable"
    )
    diff = actions.add_parser("diff", help="what differs; exit 1 if anything does")
    diff.add_argument("before", metavar="A")
    diff.add_argument("after", metavar="B")
    for action in (merge, degrade):
        action.add_argument("-o", "--output", metavar="FILE", help="where to write; default stdout")


def run(args: argparse.Namespace) -> Answer:
    """Run one subcommand."""
    match args.action:
        case "list":
            return _list()
        case "show":
            return _show(read_topology(args.topology))
        case "merge":
            return _written(_merge(args), args.output)
        case "degrade":
            factors = dict(parse_factor(text) for text in args.link)
            return _written(topology.degrade(read_topology(args.topology), factors), args.output)
        case _:
            return _diff(read_topology(args.before), read_topology(args.after))


def _list() -> Answer:
    lines = [f"{'name':<12} {'GPUs':>5} {'nodes':>5} {'links':>5}  fingerprint"]
    rows = []
    for machine in map(catalog.build, catalog.names()):
        gpus, nodes, links = len(machine.gpus), len(machine.nodes), len(machine.links)
        identity = machine.fingerprint
        rows.append({"name": machine.name, "gpus": gpus, "nodes": nodes, "links": links, "fingerprint": identity})
        lines.append(f"{machine.name:<12} {gpus:>5} {nodes:>5} {links:>5}  {identity[:12]}")
    return Answer({"topologies": rows}, "\n".join(lines))


def summary(machine: Topology) -> dict[str, documents.Json]:
    """What a topology consists of, in numbers."""
    return {
        "name": machine.name,
        "fingerprint": machine.fingerprint,
        "devices": dict(Counter(device.kind.value for device in machine.devices)),
        "nodes": list(machine.nodes),
        "links": dict(Counter(link.link_class.value for link in machine.links)),
        "findings": len(machine.findings),
    }


def _show(machine: Topology) -> Answer:
    from synth.topology.show import render

    return Answer(summary(machine) | {"topology": topology.to_document(machine)}, render(machine))


def _merge(args: argparse.Namespace) -> Topology:
    parts = [_named(read_topology(name), name) for name in args.topologies]
    return topology.merge(parts, name=args.name, fabric=None if args.fabric == "none" else args.fabric)


def _named(part: Topology, file: str) -> Topology:
    """A single-node part whose node has a generic name takes the file's name, so that several such files merge."""
    if part.nodes == ("n0",) and Path(file).exists():
        return topology.rename_node(part, "n0", Path(file).stem)
    return part


def _written(machine: Topology, output: str | None) -> Answer:
    document = topology.to_document(machine)
    if output is None:
        return Answer(document, documents.canonical(document))
    topology.save(machine, output)
    counts = summary(machine)
    return Answer(counts | {"file": output}, f"{machine.name}: {len(machine.gpus)} GPUs, written to {output}")


def _diff(before: Topology, after: Topology) -> Answer:
    from synth.topology.diff import diff

    changes = diff(before, after)
    document = {"equal": not changes, "changes": [change.to_document() for change in changes]}
    text = "\n".join(str(change) for change in changes) or "no difference"
    return Answer(document, text, exit=1 if changes else 0)
