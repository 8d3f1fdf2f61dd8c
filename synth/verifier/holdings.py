"""Who holds what, when: interprets a plan's transfers and reports every illegal one.

A segment's rounds are all shifted by the same amount, so legality is decided on segment 0 alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from synth.collective import EVERY
from synth.plan import Plan
from synth.verifier.violation import Violation


def check_movement(plan: Plan) -> Iterator[Violation]:
    """Rules of collectives that only move data: alltoall, sendrecv, allgather, broadcast."""
    chunks, transfers = plan.chunks, plan.transfers
    ranks = len(plan.ranks)
    key = transfers.chunk * ranks + transfers.dst
    first = np.lexsort((transfers.round, key))
    arrivals, position = np.unique(key[first], return_index=True)
    arrived = transfers.round[first][position]
    again = np.ones(len(key), dtype=bool)
    again[first[position]] = False
    origin = chunks.origin[transfers.chunk]
    for t in np.flatnonzero(again | (transfers.dst == origin)).tolist():
        yield _violation(plan, t, "received-twice", "receives a chunk it already has", at=int(transfers.dst[t]))
    source = transfers.chunk * ranks + transfers.src
    place = np.minimum(np.searchsorted(arrivals, source), max(len(arrivals) - 1, 0))
    relayed = (arrivals[place] == source) & (arrived[place] < transfers.round) if len(key) else np.zeros(0, dtype=bool)
    for t in np.flatnonzero((transfers.src != origin) & ~relayed).tolist():
        yield _violation(plan, t, "send-before-data", "sends a chunk it does not hold yet", at=int(transfers.src[t]))
    held = set(arrivals.tolist())
    for c in range(len(chunks)):
        wanted = range(plan.members) if chunks.target[c] == EVERY else (int(chunks.target[c]),)
        for rank in wanted:
            if rank != chunks.origin[c] and c * ranks + rank not in held:
                yield _missing(plan, rank, c, "never receives the chunk")


def check_reduction(plan: Plan) -> Iterator[Violation]:
    """Rules of collectives that add: every rank's contribution arrives exactly once where it is promised."""
    chunks, transfers = plan.chunks, plan.transfers
    ranks, members = len(plan.ranks), plan.members
    everyone = (1 << members) - 1
    # plain lists and one number for (chunk, rank): large plans have a million transfers
    source = (transfers.chunk * ranks + transfers.src).tolist()
    target = (transfers.chunk * ranks + transfers.dst).tolist()
    reduce = transfers.reduce.tolist()
    held: dict[int, int] = {}

    def holding(place: int) -> int:
        if place in held:
            return held[place]
        rank = place % ranks
        return 1 << rank if rank < members else 0

    order = np.lexsort((-transfers.reduce, transfers.round))
    edges = np.flatnonzero(np.diff(transfers.round[order])) + 1
    for together in np.split(order, edges) if len(order) else []:
        sent = [(t, holding(source[t])) for t in together.tolist()]
        for t, what in sent:
            place = target[t]
            has, adds = holding(place), reduce[t]
            dst = place % ranks
            if not what:
                yield _violation(plan, t, "send-before-data", "sends a chunk it holds nothing of", at=source[t] % ranks)
            elif adds and has & what:
                who = _ranks(has & what)
                yield _violation(plan, t, "reduced-twice", f"adds the contribution of {who} a second time", at=dst)
            elif not adds and what & ~has == 0:
                yield _violation(plan, t, "received-twice", "receives a chunk it already has", at=dst)
            elif not adds and has & ~what:
                who = _ranks(has & ~what)
                yield _violation(plan, t, "overwritten", f"overwrites the contribution of {who} it holds", at=dst)
            held[place] = has | what if adds else what
    for c in range(len(chunks)):
        wanted = range(members) if chunks.target[c] == EVERY else (int(chunks.target[c]),)
        for rank in wanted:
            lost = everyone & ~holding(c * ranks + rank)
            if lost:
                yield _missing(plan, rank, c, f"ends without the contribution of {_ranks(lost)} to the chunk")


def _ranks(mask: int, most: int = 6) -> str:
    ranks = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    shown = ", ".join(map(str, ranks[:most]))
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{', ...' if len(ranks) > most else ''}"


def _violation(plan: Plan, t: int, rule: str, what: str, *, at: int) -> Violation:
    transfers = plan.transfers
    chunk, src, dst, round = (int(getattr(transfers, name)[t]) for name in ("chunk", "src", "dst", "round"))
    return Violation(
        rule=rule,
        message=f"rank {at} {what} (chunk {chunk}, {src} -> {dst}, round {round})",
        rank=at,
        round=round,
        chunk=chunk,
    )


def _missing(plan: Plan, rank: int, chunk: int, what: str) -> Violation:
    return Violation(rule="not-delivered", message=f"rank {rank} {what} {chunk}", rank=rank, chunk=chunk)
