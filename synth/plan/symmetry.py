"""Symmetric plans: expanding the representatives of each orbit into the whole plan."""

from __future__ import annotations

import numpy as np

from synth.errors import PlanError
from synth.plan.ir import Chunks, Plan, Symmetry, Transfers


def expand(plan: Plan) -> Plan:
    """The plan with every chunk and transfer listed; a plan without symmetry is returned as it is.

    Raises:
        PlanError: the generators do not make a group of the stated order that acts freely on the ranks.
    """
    if plan.symmetry is None:
        return plan
    elements = group_elements(plan.symmetry, len(plan.ranks))
    chunks, transfers = plan.chunks, plan.transfers
    order, count = len(elements), len(chunks)
    padded = np.concatenate([elements, np.full((order, 1), -1)], axis=1)  # position -1 maps to -1
    whole_chunks = Chunks(
        origin=padded[:, chunks.origin].ravel(),
        target=padded[:, chunks.target].ravel(),
        share=np.tile(chunks.share, order),
    )
    whole_transfers = Transfers(
        chunk=(np.arange(order)[:, None] * count + transfers.chunk).ravel(),
        src=elements[:, transfers.src].ravel(),
        dst=elements[:, transfers.dst].ravel(),
        round=np.tile(transfers.round, order),
        reduce=np.tile(transfers.reduce, order),
    )
    return plan.with_(chunks=whole_chunks, transfers=whole_transfers.sorted(), symmetry=None)


def group_elements(symmetry: Symmetry, ranks: int) -> np.ndarray:
    """All elements as [order, ranks] images, the identity first, in a fixed order.

    An element that acts freely is known by where it takes rank 0, so elements are compared by that alone at first.

    Raises:
        PlanError: as :func:`expand`.
    """
    generators = np.array(symmetry.generators, dtype=np.int64).reshape(-1, ranks)
    found = {0: np.arange(ranks)}
    frontier = [found[0]]
    free = True
    while frontier and free:
        following = []
        for element in frontier:
            for image in generators[:, element]:
                known = found.setdefault(int(image[0]), image)
                if known is image:
                    following.append(image)
                elif not np.array_equal(known, image):
                    free = False
        frontier = following
    elements = np.array(list(found.values()))
    if not free or (elements[1:] == elements[0]).any():
        raise PlanError("plan: its symmetry does not act freely; an element fixes a rank", subject="symmetry")
    if len(elements) != symmetry.order:
        raise PlanError(
            f"plan: its symmetry states order {symmetry.order}, but the generators make {len(elements)} elements",
            subject="symmetry",
        )
    return elements
