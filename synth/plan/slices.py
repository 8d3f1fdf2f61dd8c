"""Slices: the chunks and transfers one rank takes part in, with the digest of the whole plan."""

from __future__ import annotations

import numpy as np

from synth import documents
from synth.documents import Fields, Json
from synth.errors import DemandError
from synth.plan import codec
from synth.plan.ir import Chunks, Plan, Transfers
from synth.plan.symmetry import expand

FORMAT = "synth-plan-slice/1"


def slice_plan(plan: Plan, rank: int) -> dict[str, Json]:
    """One rank's part of a plan as a document: the plan's head, its own chunks and transfers, and both digests.

    Raises:
        DemandError: the plan has no such rank.
    """
    if not 0 <= rank < len(plan.ranks):
        raise DemandError(f"rank {rank}: the plan has ranks 0 to {len(plan.ranks) - 1}", subject=str(rank))
    whole = expand(plan)
    transfers = whole.transfers
    mine = np.flatnonzero((transfers.src == rank) | (transfers.dst == rank))
    used = np.unique(transfers.chunk[mine])
    # every chunk of a block is needed to know where this one begins inside it
    chunks = whole.chunks
    block = chunks.origin * (len(plan.ranks) + 1) + chunks.target
    kept = np.flatnonzero(np.isin(block, block[used]))
    place = np.full(len(chunks), -1)
    place[kept] = np.arange(len(kept))
    part = whole.with_(
        chunks=Chunks(chunks.origin[kept], chunks.target[kept], chunks.share[kept]),
        transfers=Transfers(
            place[transfers.chunk[mine]],
            transfers.src[mine],
            transfers.dst[mine],
            transfers.round[mine],
            transfers.reduce[mine],
        ),
        certificate=None,
        demand=None,
    )
    document = codec.to_document(part)
    document |= {"format": FORMAT, "plan": plan.digest, "rank": rank, "rounds": whole.rounds}
    return document | {"digest": documents.digest(document)}


def load_slice(document: Json, *, subject: str = "slice") -> tuple[Plan, int, str]:
    """Read a slice: (the partial plan, its rank, the digest of the whole plan).

    Raises:
        DocumentError: it breaks the format, or its digest does not match its content.
    """
    fields = Fields(document, f"{subject}#")
    fields.format(FORMAT)
    rank = fields.integer("rank")
    content = {key: value for key, value in fields.value.items() if key != "digest"}
    if fields.text("digest") != documents.digest(content):
        raise fields.error("digest", "does not match the content; the slice was changed or cut on its way")
    plan = codec.from_document(content | {"format": codec.FORMAT}, subject=subject)
    return plan, rank, fields.text("plan")
