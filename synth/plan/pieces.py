"""Following chunks through one rank: where each lies, what is added to it, which scratch slot it takes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from synth.collective import EVERY
from synth.plan.ir import Plan
from synth.plan.program import Buffer

NOWHERE = -1
"""Instead of a buffer, where a rank has no own part of a reduced chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Segments of chunks that travel, as columns sorted by round, peer, chunk, segment.

    ``buffer`` says where the piece lies or lands, ``slot`` which scratch slot (0 elsewhere). ``staged`` marks pieces
    that must not land in place, ``reduce`` those that are added. ``base`` is where the rank's own part of a reduced
    piece lies, ``NOWHERE`` when it has none.
    """

    round: np.ndarray
    peer: np.ndarray
    chunk: np.ndarray
    segment: np.ndarray
    buffer: np.ndarray
    slot: np.ndarray
    staged: np.ndarray
    reduce: np.ndarray
    base: np.ndarray


def follow(plan: Plan, rank: int) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[int, int]]]:
    """Follow every chunk through ``rank``, segment 0 standing for all.

    Returns:
        sends and receives, each [n, 7] rows (round, peer, chunk, buffer, staged, reduce, base), and for chunks that
        need scratch the rounds (first, last) between which segment 0 lies there.
    """
    transfers = plan.transfers
    events: dict[int, dict[int, list[int]]] = {}
    for position in np.flatnonzero((transfers.src == rank) | (transfers.dst == rank)).tolist():
        by_round = events.setdefault(int(transfers.chunk[position]), {})
        by_round.setdefault(int(transfers.round[position]), []).append(position)
    sends: list[tuple[int, ...]] = []
    receives: list[tuple[int, ...]] = []
    lifetimes: dict[int, tuple[int, int]] = {}
    for chunk, by_round in events.items():
        origin, target = int(plan.chunks.origin[chunk]), int(plan.chunks.target[chunk])
        gives = rank < plan.members and origin in (rank, EVERY)
        keeps = rank < plan.members and target in (rank, EVERY)
        home = Buffer.OUTPUT if keeps else Buffer.SCRATCH
        here: int = Buffer.INPUT if gives else NOWHERE
        first = last = None
        for round in sorted(by_round):
            leaving = [p for p in by_round[round] if transfers.src[p] == rank]
            arriving = [p for p in by_round[round] if transfers.dst[p] == rank]
            for p in leaving:
                sends.append((round, int(transfers.dst[p]), chunk, max(here, 0), 0, 0, NOWHERE))
            for p in arriving:
                adds = int(transfers.reduce[p])
                base = here if adds else NOWHERE
                receives.append((round, int(transfers.src[p]), chunk, home, int(bool(leaving)), adds, base))
            if arriving:
                here = home
                first = round if first is None else first
            if here == Buffer.SCRATCH:
                last = round
        if home is Buffer.SCRATCH and first is not None and last is not None:
            lifetimes[chunk] = (first, last)
    return _rows(sends), _rows(receives), lifetimes


def _rows(rows: list[tuple[int, ...]]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1, 7)


def assign_slots(plan: Plan, lifetimes: dict[int, tuple[int, int]]) -> tuple[dict[tuple[int, int], int], int]:
    """Give every relayed (chunk, segment) a scratch slot; a slot is used again once its piece has left.

    A slot is handed on among chunks of equal share only, so that its size fits them all.
    """
    items = sorted(
        (first + segment, last + segment, chunk, segment)
        for chunk, (first, last) in lifetimes.items()
        for segment in range(plan.segments)
    )
    slots: dict[tuple[int, int], int] = {}
    busy: list[tuple[int, int, int]] = []  # (last round, share, slot)
    free: dict[int, list[int]] = {}
    count = 0
    for first, last, chunk, segment in items:
        while busy and busy[0][0] < first:
            _, share, slot = heapq.heappop(busy)
            heapq.heappush(free.setdefault(share, []), slot)
        share = int(plan.chunks.share[chunk])
        if free.get(share):
            slot = heapq.heappop(free[share])
        else:
            slot, count = count, count + 1
        slots[chunk, segment] = slot
        heapq.heappush(busy, (last, share, slot))
    return slots, count


def by_segment(rows: np.ndarray, plan: Plan, slots: dict[tuple[int, int], int]) -> Pieces:
    """Every row once per segment, segment k in round ``round + k``, in the order both sides agree on."""
    parts = plan.segments
    round, peer, chunk, buffer, staged, reduce, base = np.repeat(rows, parts, axis=0).T
    segment = np.tile(np.arange(parts), len(rows))
    order = np.lexsort((segment, chunk, peer, round + segment))
    slot = np.array(
        [slots.get(key, 0) for key in zip(chunk[order].tolist(), segment[order].tolist(), strict=True)], dtype=np.int64
    )
    return Pieces(
        round=(round + segment)[order],
        peer=peer[order],
        chunk=chunk[order],
        segment=segment[order],
        buffer=buffer[order],
        slot=slot,
        staged=(staged > 0)[order],
        reduce=(reduce > 0)[order],
        base=base[order],
    )
