"""``synth simulate``: what a plan costs."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from synth import documents
from synth import plan as plans
from synth.cli.answer import Answer
from synth.cli.inputs import read_topology
from synth.collective import matrix_from_document
from synth.errors import InvalidPlan
from synth.plan.sizes import demand_of
from synth.simulator import Cost, Simulation, simulate
from synth.simulator.trace import chrome_trace
from synth.topology import Routes, Topology
from synth.units import format_bytes, format_rate, format_seconds, parse_size
from synth.verifier import proven_bound_ns, verify


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="plan document")
    parser.add_argument("--topology", metavar="TOPO", required=True, help="file or catalog name")
    parser.add_argument("--bytes", metavar="N", help="size; default: the one the plan was made for")
    parser.add_argument("--demand", metavar="FILE", help='bytes per pair, {"bytes": [[N x N]]}, for alltoall')
    parser.add_argument("--cost", choices=[cost.value for cost in Cost], default=Cost.ROUNDS.value)
    parser.add_argument("--launch-ns", type=float, default=0.0, metavar="NS", help="cost of starting a round (rounds)")
    parser.add_argument("--trace", metavar="FILE", help="write the timeline for chrome://tracing or Perfetto")


def run(args: argparse.Namespace) -> Answer:
    """Price the plan after checking it; an invalid one is refused."""
    plan = plans.load(args.plan)
    topology = read_topology(args.topology)
    matrix = None
    if args.demand:
        matrix = matrix_from_document(documents.read(args.demand), subject=args.demand)
    demand = demand_of(plan, None if args.bytes is None else parse_size(args.bytes, subject="--bytes"), matrix)
    broken = [violation for violation in verify(plan, topology) if violation.rule != "bound"]
    if broken:
        raise InvalidPlan(f"{args.plan}: {broken[0].message}; 'synth check' lists all {len(broken)} violations")
    routes = Routes.among(topology, plan.ranks)
    result = simulate(plan, topology, demand, launch_ns=args.launch_ns, cost=args.cost, routes=routes)
    document: dict[str, Any] = {
        "seconds": result.seconds,
        "bytes": result.bytes,
        "rounds": result.rounds,
        "algbw_bytes_per_s": result.algbw_bytes_per_s,
        "busbw_bytes_per_s": result.busbw_bytes_per_s,
        "busiest_links": busiest_links(result, topology),
    }
    lines = [
        f"{plan.collective.value} of {format_bytes(result.bytes)}: {format_seconds(result.seconds)} in "
        f"{result.rounds} rounds, algbw {format_rate(result.algbw_bytes_per_s)}, "
        f"busbw {format_rate(result.busbw_bytes_per_s)}"
    ]
    if plan.certificate is not None:
        bound = proven_bound_ns(plan.certificate, routes, demand) * 1e-9
        if bound > 0:
            document |= {"bound_seconds": bound, "gap": result.seconds / bound - 1}
            lines.append(f"bound {format_seconds(bound)}, gap {100 * document['gap']:.2f} %")
    for link in document["busiest_links"][:5]:
        lines.append(f"  {link['src']} -> {link['dst']}: busy {100 * link['busy']:.1f} % of the time")
    if args.trace:
        documents.write(args.trace, documents.canonical(chrome_trace(plan, topology, demand)))
        lines.append(f"timeline written to {args.trace}")
    return Answer(document, "\n".join(lines))


def busiest_links(result: Simulation, topology: Topology, most: int = 10) -> list[dict[str, Any]]:
    """The links that are busy longest, busiest first."""
    order = np.argsort(-result.link_seconds, kind="stable")[:most].tolist()
    return [
        {
            "src": topology.links[position].src,
            "dst": topology.links[position].dst,
            "seconds": float(result.link_seconds[position]),
            "busy": float(result.link_seconds[position] / result.seconds) if result.seconds else 0.0,
        }
        for position in order
        if result.link_seconds[position] > 0
    ]
