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
    """Rules of collectives that add: every rank's contribution arrives exactly once where it is promised.

    What a rank holds of a chunk is a set of contributions, kept as bits. Chunks are judged apart, many at a time.
    """
    transfers, ranks = plan.transfers, len(plan.ranks)
    words = -(-plan.members // 64)
    many = max(1, _WORDS // (ranks * words))
    order = np.lexsort((-transfers.reduce, transfers.round, transfers.chunk // many))
    starts = np.searchsorted(transfers.chunk[order] // many, np.arange(-(-len(plan.chunks) // many) + 1))
    lost: list[Violation] = []
    for first, begin, end in zip(range(0, len(plan.chunks), many), starts[:-1], starts[1:], strict=True):
        held = np.tile(_own(ranks, plan.members), (min(many, len(plan.chunks) - first), 1))
        yield from _judged(plan, order[begin:end], held, first * ranks)
        lost += _lost(plan, held.reshape(-1, ranks, words), first)
    yield from lost


_WORDS = 2**21
"""So many words of 64 contributions are looked at together."""


def _own(ranks: int, members: int) -> np.ndarray:
    """[ranks, words] bits: every member's own contribution."""
    bits = np.zeros((ranks, -(-members // 64)), dtype=np.uint64)
    rank = np.arange(members)
    bits[rank, rank // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)
    return bits


def _judged(plan: Plan, order: np.ndarray, held: np.ndarray, first: int) -> Iterator[Violation]:
    """What is wrong with some transfers, by round those that add first; ``held`` is then what they leave behind.

    Args:
        plan: whose transfers.
        order: of them, by round.
        held: [places, words] bits that each place, a chunk at a rank, begins with.
        first: place that comes first in ``held``.
    """
    transfers, ranks = plan.transfers, len(plan.ranks)
    edges = np.flatnonzero(np.diff(transfers.round[order])) + 1
    for together in np.split(order, edges) if len(order) else []:
        everything = held[transfers.chunk[together] * ranks + transfers.src[together] - first]
        places = transfers.chunk[together] * ranks + transfers.dst[together] - first
        for now in _in_turns(places):
            here, what, place = together[now], everything[now], places[now]
            has, adds = held[place], transfers.reduce[here].astype(bool)
            empty, both = ~what.any(axis=1), (has & what).any(axis=1)
            known, more = ~(what & ~has).any(axis=1), (has & ~what).any(axis=1)
            wrong = empty | np.where(adds, both, known | more)
            for position in np.flatnonzero(wrong).tolist():
                yield _wrong(plan, int(here[position]), _number(what[position]), _number(has[position]))
            held[place] = np.where(adds[:, None], has | what, what)


def _in_turns(places: np.ndarray) -> Iterator[np.ndarray]:
    """Positions in turns that have each place once at most, in order."""
    order = np.argsort(places, kind="stable")
    begins = np.flatnonzero(np.diff(places[order], prepend=-1))
    turn = np.empty(len(places), dtype=np.int64)
    turn[order] = np.arange(len(places)) - np.repeat(begins, np.diff(begins, append=len(places)))
    for number in range(int(turn.max(initial=-1)) + 1):
        yield np.flatnonzero(turn == number)


def _wrong(plan: Plan, t: int, what: int, has: int) -> Violation:
    """A transfer that moves ``what`` to where ``has`` is held."""
    transfers = plan.transfers
    src, dst = int(transfers.src[t]), int(transfers.dst[t])
    if not what:
        return _violation(plan, t, "send-before-data", "sends a chunk it holds nothing of", at=src)
    if transfers.reduce[t]:
        who = _ranks(has & what)
        return _violation(plan, t, "reduced-twice", f"adds the contribution of {who} a second time", at=dst)
    if what & ~has == 0:
        return _violation(plan, t, "received-twice", "receives a chunk it already has", at=dst)
    who = _ranks(has & ~what)
    return _violation(plan, t, "overwritten", f"overwrites the contribution of {who} it holds", at=dst)


def _lost(plan: Plan, held: np.ndarray, first: int) -> Iterator[Violation]:
    """Contributions that are missing at the end: [chunks, ranks, words] bits, from chunk ``first`` on."""
    lacks = _own(plan.members, plan.members).sum(axis=0, dtype=np.uint64) & ~held
    target = plan.chunks.target[first : first + len(held), None]
    rank = np.arange(held.shape[1])
    wanted = np.where(target == EVERY, rank < plan.members, rank == target)
    for chunk, at in np.argwhere(wanted & lacks.any(axis=2)).tolist():
        who = _ranks(_number(lacks[chunk, at]))
        yield _missing(plan, at, first + chunk, f"ends without the contribution of {who} to the chunk")


def _number(words: np.ndarray) -> int:
    return sum(int(word) << 64 * place for place, word in enumerate(words.tolist()))


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
