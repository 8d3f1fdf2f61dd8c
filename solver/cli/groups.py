"""``synth groups``: which GPUs form an expert-parallel group, and in which order."""

from __future__ import annotations

import argparse

import numpy as np

from solver.groups.answer import Answered, answer
from synth import documents
from synth.cli.answer import Answer
from synth.cli.inputs import read_ranks, read_topology
from synth.collective import matrix_from_document
from synth.errors import InputError
from synth.formats import nccl_settings, rank_files
from synth.topology import Topology
from synth.topology.model import abridge
from synth.units import format_bytes, format_seconds, parse_size

FILES = {
    "slurm": rank_files.slurm_hostfile,
    "mpi": rank_files.mpi_rankfile,
    "torchrun": rank_files.torchrun_nodes,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("topology", metavar="TOPO", help="file or catalog name")
    parser.add_argument("--ep-size", type=int, required=True, metavar="K", help="GPUs per group")
    parser.add_argument("--ranks", metavar="LIST", help="GPUs that take part: positions or ids; default: all")
    parser.add_argument("--bytes", metavar="N", default="64MiB", help="alltoall input of each rank (%(default)s)")
    parser.add_argument("--background", metavar="FILE", help='other traffic at the same time, {"bytes": [[N x N]]}')
    parser.add_argument("--costs", action="store_true", help="add the rank-to-rank cost matrix in microseconds")
    parser.add_argument("--rank-file", choices=sorted(FILES), help="kind of file that -o writes")
    parser.add_argument("--env", action="store_true", help="-o writes NCCL settings with their reasons")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the rank file or the settings")


def run(args: argparse.Namespace) -> Answer:
    """Form the groups."""
    if bool(args.output) != bool(args.rank_file or args.env) or (args.rank_file and args.env):
        raise InputError("-o: goes with one of --rank-file and --env, which say what to write", subject="-o")
    topology = read_topology(args.topology)
    background: np.ndarray | None = None
    if args.background:
        background = matrix_from_document(documents.read(args.background), subject=args.background)
    found = answer(
        topology,
        args.ep_size,
        ranks=read_ranks(args.ranks, topology),
        bytes=parse_size(args.bytes, subject="--bytes"),
        background=background,
        costs=args.costs,
    )
    if args.output:
        text = (
            nccl_settings.render(nccl_settings.settings(topology, found.groups))
            if args.env
            else FILES[args.rank_file](topology, found.rank_order)
        )
        documents.write(args.output, text)
    return Answer(found.document, _text(found, topology))


def _text(found: Answered, topology: Topology) -> str:
    answered = found.document
    lines = [
        f"{len(found.groups)} groups of {len(found.groups[0])} on {topology.name}: all alltoalls of "
        f"{format_bytes(answered['bytes'])} at once take {format_seconds(answered['predicted_seconds'])} "
        f"(bound {format_seconds(answered['bound_seconds'])}, {answered['termination']})"
    ]
    for name, seconds in answered["baseline_seconds"].items():
        told = "cuts a group apart" if seconds is None else format_seconds(seconds)
        lines.append(f"  {name}: {told}")
    lines += [f"group {number}: {abridge(group, 16)}" for number, group in enumerate(found.groups[:16])]
    if len(found.groups) > 16:
        lines.append(f"... {len(found.groups) - 16} more groups; --json lists all")
    lines += [f"{item['name']}={item['value']}  # {item['reason']}" for item in answered["settings"]]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in answered["warnings"])])
