"""Slices: the chunks and transfers one rank takes part in, with the digest of the whole plan.

Of a symmetric plan only those images are made that the rank takes part in: a group that acts freely has at most one
element that takes a representative's sender (or receiver) to the rank. The result is the same as that of cutting the
expanded plan, byte for byte.
"""

from __future__ import annotations

import numpy as np

from synth import documents
from synth.documents import Fields, Json
from synth.errors import DemandError
from synth.plan import codec
from synth.plan.ir import Chunks, Plan, Transfers
from synth.plan.symmetry import group_elements

FORMAT = "synth-plan-slice/1"


class Slicer:
    """Cuts slices of one plan; what all of them need is worked out once.

    Raises:
        PlanError: the plan's generators do not make a group of the stated order that acts freely on the ranks.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        ranks, chunks = len(plan.ranks), plan.chunks
        identity = np.arange(ranks)[None]
        self._elements = identity if plan.symmetry is None else group_elements(plan.symmetry, ranks)
        order = len(self._elements)
        # one more column, so that position -1 (every rank) maps to itself
        self._images = np.concatenate([self._elements, np.full((order, 1), -1)], axis=1)
        self._element = np.full((ranks, ranks), -1, dtype=np.int32)  # [from, to] element that takes one to the other
        self._element[identity, self._elements] = np.arange(order, dtype=np.int32)[:, None]
        # chunks whose blocks are images of one another, and the element that takes each to their common block
        least = self._elements.min(axis=0)
        anchor = np.where(chunks.origin >= 0, chunks.origin, chunks.target)  # -1 where origin and target are both
        home = np.where(anchor >= 0, self._element[anchor, least[anchor]], 0)
        block = (self._images[home, chunks.origin] + 1) * (ranks + 1) + self._images[home, chunks.target] + 1
        self._anchor = anchor
        self._base = np.where(anchor >= 0, least[anchor], -1)
        _, self._class = np.unique(block, return_inverse=True)
        self._by_class = np.argsort(self._class, kind="stable")
        self._class_starts = np.concatenate([[0], np.cumsum(np.bincount(self._class))]).astype(np.int64)

    def cut(self, rank: int) -> dict[str, Json]:
        """One rank's part of the plan as a document, as :func:`slice_plan`."""
        plan = self._plan
        if not 0 <= rank < len(plan.ranks):
            raise DemandError(f"rank {rank}: the plan has ranks 0 to {len(plan.ranks) - 1}", subject=str(rank))
        transfers, count = plan.transfers, len(plan.chunks)
        sends, receives = self._element[transfers.src, rank], self._element[transfers.dst, rank]
        rows = np.concatenate([np.flatnonzero(sends >= 0), np.flatnonzero(receives >= 0)])
        element = np.concatenate([sends[sends >= 0], receives[receives >= 0]]).astype(np.int64)
        chunk = element * count + transfers.chunk[rows]
        mine = Transfers(
            chunk,
            self._elements[element, transfers.src[rows]],
            self._elements[element, transfers.dst[rows]],
            transfers.round[rows],
            transfers.reduce[rows],
        ).sorted()
        kept = self._same_blocks(np.unique(chunk))
        element, listed = kept // count, kept % count
        chunks = plan.chunks
        part = plan.with_(
            chunks=Chunks(
                self._images[element, chunks.origin[listed]],
                self._images[element, chunks.target[listed]],
                chunks.share[listed],
            ),
            transfers=Transfers(np.searchsorted(kept, mine.chunk), mine.src, mine.dst, mine.round, mine.reduce),
            certificate=None,
            demand=None,
            symmetry=None,
        )
        document = codec.to_document(part)
        document |= {"format": FORMAT, "plan": plan.digest, "rank": rank, "rounds": plan.rounds}
        return document | {"digest": documents.digest(document)}

    def _same_blocks(self, used: np.ndarray) -> np.ndarray:
        """All images of chunks, ``element * chunks + chunk`` in order, in the blocks of the given ones.

        Every chunk of a block is needed to know where each begins inside it.
        """
        count, order = len(self._plan.chunks), len(self._elements)
        element, chunk = used // count, used % count
        anchor = self._anchor[chunk]
        shared = np.unique(self._class[chunk[anchor < 0]])  # blocks of all ranks, to which every image belongs
        everywhere = np.flatnonzero(np.isin(self._class, shared))
        parts = [(np.arange(order)[:, None] * count + everywhere).ravel()]
        # the others by their class and where the anchor of their common block goes
        element, chunk, anchor = (column[anchor >= 0] for column in (element, chunk, anchor))
        ranks = len(self._plan.ranks)
        wanted = np.unique(self._class[chunk] * ranks + self._elements[element, anchor])
        label, place = wanted // ranks, wanted % ranks
        sizes = (self._class_starts[1:] - self._class_starts[:-1])[label]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members = self._by_class[np.repeat(self._class_starts[label], sizes) + offsets]
        taken = self._element[self._anchor[members], np.repeat(place, sizes)].astype(np.int64)
        parts.append(taken * count + members)
        return np.sort(np.concatenate(parts))


def slice_plan(plan: Plan, rank: int) -> dict[str, Json]:
    """One rank's part of a plan as a document: the plan's head, its own chunks and transfers, and both digests.

    Raises:
        DemandError: the plan has no such rank.
        PlanError: as :class:`Slicer`.
    """
    return Slicer(plan).cut(rank)


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
