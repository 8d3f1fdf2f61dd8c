"""``synth place``: which expert, and which copies of it, live on which rank."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from solver.placement.answer import Answered, Request, answer
from solver.placement.place import MIN_GAIN, SLACK
from synth import documents
from synth.cli.answer import Answer
from synth.cli.inputs import read_topology
from synth.documents import Fields
from synth.errors import InputError
from synth.formats import expert_maps
from synth.plan import to_document
from synth.units import format_bytes, format_seconds, parse_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("topology", metavar="TOPO", help="file or catalog name")
    parser.add_argument("--loads", metavar="FILE", required=True, help='{"loads": [[load of each expert] per layer]}')
    parser.add_argument("--replicas", type=int, metavar="R", help="physical experts in all; default: no copies")
    parser.add_argument("--ep-size", type=int, metavar="K", help="ranks; default: all GPUs")
    parser.add_argument("--expert-groups", type=int, default=1, metavar="G", help="groups kept inside nodes")
    parser.add_argument("--previous", metavar="FILE", help="placement in force: this command's answer, SGLang's, ..")
    parser.add_argument("--coactivation", metavar="FILE", help='{"coactivation": [[[E x E]]]} per layer')
    parser.add_argument("--sources", metavar="FILE", help='{"sources": [[[ranks x E]]]} tokens per layer')
    parser.add_argument("--expert-bytes", metavar="N", default="0", help="weights of one expert in one layer")
    parser.add_argument("--memory", metavar="N", help="memory a rank may spend on experts")
    parser.add_argument("--slack", type=float, default=SLACK, help="loads this close count as equal (%(default)s)")
    parser.add_argument("--min-gain", type=float, default=MIN_GAIN, help="smaller gains change nothing (%(default)s)")
    parser.add_argument("--format", choices=expert_maps.FORMATS, default="eplb", help="of -o (%(default)s)")
    parser.add_argument(
        "--dense-layers", type=int, default=0, metavar="N", help="first layers without experts (sglang)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the maps")
    parser.add_argument("--migration", metavar="FILE", help="write the moves as sendrecv plans")


def run(args: argparse.Namespace) -> Answer:
    """Place the experts."""
    for name in ("slack", "min_gain"):
        if not 0 <= getattr(args, name) <= 1:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag}: is {getattr(args, name)}; must be from 0 to 1, such as 0.02", subject=flag)
    if args.dense_layers < 0:
        raise InputError(f"--dense-layers: is {args.dense_layers}; must be at least 0", subject="--dense-layers")
    if args.migration and not args.previous:
        raise InputError("--migration: needs --previous, the placement to move from", subject="--migration")
    found = answer(read_topology(args.topology), _request(args))
    if args.output:
        documents.write(args.output, documents.canonical(_maps(args, found)))
    if args.migration:
        documents.write(args.migration, documents.canonical(_steps(found)))
    return Answer(found.document, _text(found))


def _request(args: argparse.Namespace) -> Request:
    def optional(name: str | None, read: Any) -> Any:
        return None if name is None else read(documents.read(name), subject=name)

    def cube(key: str) -> Any:
        return lambda document, subject: expert_maps.table(
            Fields(document, f"{subject}#").items(key), f"{subject}#/{key}", 3
        )

    return Request(
        loads=expert_maps.read_loads(documents.read(args.loads), subject=args.loads),
        replicas=args.replicas,
        ep_size=args.ep_size,
        expert_groups=args.expert_groups,
        previous=optional(args.previous, expert_maps.read_map),
        coactivation=optional(args.coactivation, cube("coactivation")),
        sources=optional(args.sources, cube("sources")),
        expert_bytes=parse_size(args.expert_bytes, subject="--expert-bytes"),
        memory_bytes=None if args.memory is None else parse_size(args.memory, subject="--memory"),
        slack=args.slack,
        min_gain=args.min_gain,
    )


def _maps(args: argparse.Namespace, found: Answered) -> dict[str, Any]:
    placement = found.placed.placement
    if args.format == "vllm-ascend":
        return expert_maps.to_vllm_ascend(placement.phy2log, placement.shape.ranks)
    more = {"dense": args.dense_layers} if args.format == "sglang" else {}
    return expert_maps.WRITERS[args.format](placement.phy2log, placement.log2phy, placement.logcnt, **more)


def _steps(found: Answered) -> dict[str, Any]:
    listed = zip(found.document["migration"]["steps"], found.steps, strict=True)
    return {"steps": [{**step, "plan": to_document(value.plan)} for step, value in listed]}


def _text(found: Answered) -> str:
    answered, placed = found.document, found.placed
    shape = placed.placement.shape

    def mean(key: str) -> float:
        return float(np.mean(answered[key]))

    lines = [
        f"{len(answered['phy2log'])} layers, {shape.experts} experts in {shape.slots} slots on {shape.ranks} ranks of "
        f"{shape.nodes} nodes",
        f"highest over mean rank load: {mean('max_over_mean'):.4f} (bound {mean('bound_max_over_mean'):.4f}, "
        f"EPLB {mean('eplb_max_over_mean'):.4f}, before {mean('before_max_over_mean'):.4f}), means over layers",
        f"between nodes: {100 * mean('cross_node_share'):.1f} % of the tokens",
        f"expected gain of the busiest ranks: {100 * answered['gain']['low']:.1f} to "
        f"{100 * answered['gain']['high']:.1f} %",
    ]
    if bare := answered["without_replicas"]:
        extra = answered["extra_bytes_per_rank"]
        cost = f", which saves {format_bytes(extra)} per rank" if extra else ""
        lines.append(f"without copies: {float(np.mean(bare['max_over_mean'])):.4f}{cost}")
    if answered["migration"]["steps"] or placed.kept.any():
        moved = answered["migration"]
        took = "" if moved["seconds"] is None else f", {format_seconds(moved['seconds'])}"
        kept = int(placed.kept.sum())
        lines.append(
            f"moves: {moved['experts']} experts in {moved['rounds']} rounds{took}; {kept} layers keep their placement "
            f"because the gain is under {100 * placed.min_gain:g} %"
        )
    return "\n".join([*lines, *(f"warning: {warning}" for warning in answered["warnings"])])
