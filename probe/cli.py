"""``synth probe``: read this machine, or captures of one, and write its topology."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from probe import agent, build, compare, facts_document, live, nics
from probe.exports import nccl_env
from probe.exports import nccl_xml as nccl_xml_file
from probe.facts import Facts
from probe.merge import merge
from probe.network import describe
from probe.network.join import join
from probe.observed import observed
from probe.sources import nccl_xml, nvidia_smi, sniff
from synth import documents, topology
from synth.cli.answer import Answer
from synth.cli.inputs import progress
from synth.client import Client, Environment
from synth.errors import CaptureError
from synth.topology import Severity, Topology
from synth.units import parse_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "captures", nargs="*", metavar="CAPTURE", help="captures of this one machine, of any kind ('-' reads stdin)"
    )
    parser.add_argument(
        "--smi", action="append", default=[], metavar="FILE", help="output of nvidia-smi topo -m ('-' reads stdin)"
    )
    parser.add_argument(
        "--nccl-xml", action="append", default=[], metavar="FILE", help="topology XML that NCCL or RCCL wrote"
    )
    parser.add_argument(
        "--network",
        metavar="NET",
        help="join nodes (topology files given as CAPTURE) over this network: flat, rails, isolated-rails, "
        "leaf-spine:NODES_PER_LEAF:OVERSUBSCRIPTION, or a file (synth's description, Slurm's topology.conf or .yaml, "
        "topograph's graph, model or node labels, ibnetdiscover)",
    )
    parser.add_argument(
        "--compare", action="store_true", help="this machine as NVML, nvidia-smi, sysfs and NCCL's own dump see it"
    )
    parser.add_argument("--measure", action="store_true", help="time every route between this machine's GPUs")
    parser.add_argument("--max-seconds", type=float, default=20.0, metavar="S", help="of measuring (default 20)")
    parser.add_argument("--max-bytes", default="16MiB", metavar="N", help="of a measured message (default 16MiB)")
    parser.add_argument("--transport", default="nccl", help=argparse.SUPPRESS)
    parser.add_argument("--post", action="store_true", help="report to the synth server (--server or SYNTH_SERVER)")
    parser.add_argument("--watch", action="store_true", help="report now and after each change, until stopped")
    parser.add_argument("--server", metavar="URL", help="the synth server; default SYNTH_SERVER")
    parser.add_argument("--interval", type=float, default=30.0, metavar="S", help="between readings (default 30)")
    parser.add_argument("--gpu", metavar="MODEL", help="the GPUs' product name, where a capture does not say it")
    parser.add_argument("--node", metavar="NAME", help="name of the node in device ids (default: n0, live: host name)")
    parser.add_argument(
        "--to",
        choices=("topology", "facts", "nccl-xml", "nccl-env"),
        default="topology",
        help="what to write: a topology, the facts it is made of, NCCL's XML, or NIC settings",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the topology")


def run(args: argparse.Namespace) -> Answer:
    """Read the sources given, or this machine, and answer with its topology."""
    captured = bool(args.captures or args.smi or args.nccl_xml)
    if args.network:
        return _cluster(args)
    if args.compare:
        return _compare()
    if args.measure and captured:
        raise CaptureError("--measure: needs the machine itself, not a capture of it", subject="--measure")
    node = args.node or ("n0" if captured else live.host_name())
    if not node or "/" in node:
        raise CaptureError(f"--node: {node!r} cannot name a node; use a word without '/'", subject="--node")
    if args.watch:
        return _watch(args, node)
    facts, machine = _read(args, node)
    timings = ""
    if args.measure:
        machine, timings = _measured(machine, args)
    if args.post:
        agent.report(_client(args), node, machine)
    if args.to != "topology":
        text = _exported(args.to, facts, machine)
        if args.output:
            documents.write(args.output, text)
        return Answer({"text": text}, f"written to {args.output}" if args.output else text.rstrip())
    document = topology.to_document(machine) | {"observed": observed(facts, node)}
    if args.output:
        documents.write(args.output, documents.canonical(document) + "\n")
    return Answer(document, "\n\n".join(filter(None, [_text(machine, args.output), timings])))


def _exported(kind: str, facts: Facts, machine: Topology) -> str:
    match kind:
        case "facts":
            return facts_document.dumps(facts) + "\n"
        case "nccl-xml":
            return nccl_xml_file.write(facts)
        case _:
            return nccl_env.write(machine, nics.assign(machine))


def _read(args: argparse.Namespace, node: str) -> tuple[Facts, Topology]:
    """Facts and topology of the captures, or of this machine."""
    captured = args.captures or args.smi or args.nccl_xml
    facts = merge(_captures(args)) if captured else live.read()
    if args.gpu:
        facts = replace(facts, gpus=tuple(replace(gpu, model=gpu.model or args.gpu) for gpu in facts.gpus))
    return facts, build.topology(facts, name=_name(args, node), node=node)


def _compare() -> Answer:
    reports, failures = compare.gather()
    if not reports:
        raise CaptureError("--compare: no source answers (" + "; ".join(failures) + ")", subject="--compare")
    rows = compare.compare(reports)
    agree = all(row.agrees for row in rows)
    facts = [{"fact": row.fact, "values": row.values, "agrees": row.agrees} for row in rows]
    document = {"agree": agree, "facts": facts, "not_there": failures}
    return Answer(document, compare.table(rows, failures), 0 if agree else 1)


def _client(args: argparse.Namespace) -> Client:
    environment = Environment.read()
    return Client.from_environment(replace(environment, server=args.server or environment.server))


def _watch(args: argparse.Namespace, node: str) -> Answer:
    if not 0 < args.interval < 1e6:
        raise CaptureError("--interval: must be above 0 seconds", subject="--interval")
    stop = agent.stop_on_signals()
    sent = agent.watch(
        lambda: _read(args, node)[1], _client(args), node, interval=args.interval, stop=stop, tell=progress
    )
    return Answer({"node": node, "reports": sent}, f"{sent} reports sent")


def _measured(machine: Topology, args: argparse.Namespace) -> tuple[Topology, str]:
    from probe.measure.run import Limits
    from probe.measure.start import measured

    largest = parse_size(args.max_bytes, subject="--max-bytes")
    if not 0 < args.max_seconds < 1e6 or not 1 <= largest <= 2**32:
        raise CaptureError("--max-seconds and --max-bytes: must be above 0 (bytes at most 4 GiB)", subject="--measure")
    return measured(machine, Limits(seconds=args.max_seconds, bytes=largest), transport=args.transport)


def _cluster(args: argparse.Namespace) -> Answer:
    """Join nodes that were probed before."""
    if not args.captures:
        raise CaptureError("--network: needs the nodes' topology files", subject="--network")
    parts = []
    for file in args.captures:
        part = topology.load(file)
        parts.append(topology.rename_node(part, "n0", Path(file).stem) if part.nodes == ("n0",) else part)
    machine = join(parts, describe.read(args.network))
    if args.output:
        topology.save(machine, args.output)
    return Answer(topology.to_document(machine), _text(machine, args.output))


def _name(args: argparse.Namespace, node: str) -> str:
    files = [name for name in (*args.captures, *args.nccl_xml, *args.smi) if name != "-"]
    return Path(files[0]).stem if files else node


def _captures(args: argparse.Namespace) -> list[Facts]:
    read = [sniff.read(_bytes(name), subject=name) for name in args.captures]
    read += [nccl_xml.read(_bytes(name), subject=name) for name in args.nccl_xml]
    return read + [nvidia_smi.read(_bytes(name).decode("utf-8", "replace"), subject=name) for name in args.smi]


def _bytes(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else documents.read_bytes(name)


def _text(machine: Topology, output: str | None) -> str:
    from synth.topology.show import render

    lines = [render(machine)]
    uses = nics.assign(machine)
    if uses:
        lines.insert(0, nics.table(machine, uses) + "\n")
    worst = {severity: [f for f in machine.findings if f.severity is severity] for severity in Severity}
    if output:
        lines.append(f"written to {output}")
    elif not any(worst.values()):
        lines.append("no findings")
    return "\n".join(lines)
