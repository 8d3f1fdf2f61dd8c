"""Reading what people type: topologies, rank lists, sizes and demand files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from synth import documents, topology
from synth.collective import Demand, matrix_from_document, parse_collective
from synth.errors import DemandError, InputError, NotFoundError
from synth.topology import Topology, catalog
from synth.topology.model import abridge


def read_topology(name: str) -> Topology:
    """A topology by file name or catalog name, of any size of a family; a file wins.

    Raises:
        InputError: neither exists, or the file is no topology.
    """
    if os.path.exists(name):
        return topology.load(name)
    try:
        return catalog.build(name)
    except NotFoundError:
        if os.sep in name or name.endswith(".json"):
            raise InputError(f"{name}: no such file", subject=name) from None
        raise NotFoundError(
            f"{name}: is neither a file nor a catalog machine; the catalog has {', '.join(catalog.names())}, and their "
            "families in other sizes",
            subject=name,
        ) from None


def read_ranks(text: str | None, machine: Topology) -> tuple[str, ...]:
    """Device ids of the ranks: ``0,2,n1/gpu3`` or ``0-7``; positions count the topology's GPUs. Default: all GPUs.

    Raises:
        DemandError: an entry names no GPU.
    """
    if text is None:
        return machine.gpus
    ranks: list[str] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = entry.partition("-")
        if entry in machine.gpus:
            ranks.append(entry)
        elif first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < len(machine.gpus):
            ranks.extend(machine.gpus[int(first) : int(last or first) + 1])
        else:
            raise DemandError(
                f"--ranks: {documents.shorten(entry)} is no GPU of {machine.name}; "
                f"write ids ({abridge(machine.gpus, 3)}) or positions 0 to {len(machine.gpus) - 1}",
                subject=entry,
            )
    return tuple(ranks)


def read_demand(
    collective: str,
    ranks: Sequence[str],
    *,
    bytes: int,
    demand_file: str | None = None,
    root: int | None = None,
    pairs: str | None = None,
) -> Demand:
    """The demand that command-line flags describe; broadcast and reduce default to root 0, sendrecv to a ring.

    Raises:
        DemandError: the flags do not fit together.
    """
    kind = parse_collective(collective)
    matrix = None
    if demand_file is not None:
        matrix = matrix_from_document(documents.read(demand_file), subject=demand_file)
    if kind.rooted and root is None:
        root = 0
    count = len(ranks)
    listed: tuple[tuple[int, int], ...] = ()
    if kind.value == "sendrecv":
        listed = tuple((rank, (rank + 1) % count) for rank in range(count)) if pairs is None else tuple(_pairs(pairs))
    elif pairs is not None:
        raise DemandError("--pairs: goes with sendrecv only", subject="--pairs")
    return Demand(collective=kind, ranks=count, bytes=bytes, matrix=matrix, root=root, pairs=listed)


def _pairs(text: str) -> list[tuple[int, int]]:
    pairs = []
    for entry in text.split(","):
        src, _, dst = entry.partition(":")
        if not (src.strip().isdecimal() and dst.strip().isdecimal()):
            raise DemandError(
                f"--pairs: {documents.shorten(entry)} is no pair; write FROM:TO,FROM:TO with ranks", subject=entry
            )
        pairs.append((int(src), int(dst)))
    return pairs


def progress(message: str) -> None:
    """One line on stderr; stdout holds answers only."""
    print(message, file=sys.stderr, flush=True)
