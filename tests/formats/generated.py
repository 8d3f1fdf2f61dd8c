"""Random valid plans: relays, uneven shares, idle rounds, exchanges within a round."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from synth.collective import Collective
from synth.plan import Chunks, Plan, Transfers
from tests.plans import columns

Hop = tuple[int, int, int, int]
"""(src, dst, round, reduce)."""

EXPORTED = tuple(kind for kind in Collective if kind is not Collective.SENDRECV)


@st.composite
def plans(draw: st.DrawFn, kinds: tuple[Collective, ...] = EXPORTED) -> Plan:
    """A plan among up to six ranks without a machine."""
    kind, count = draw(st.sampled_from(kinds)), draw(st.integers(2, 6))
    root = draw(st.integers(0, count - 1)) if kind.rooted else None
    everyone = range(count)
    denominator = draw(st.sampled_from([1, 2, 4, 6, 100]))
    match kind:
        case Collective.ALLTOALL:
            blocks = [(a, b) for a in everyone for b in everyone if a != b]
        case Collective.ALLGATHER:
            blocks = [(a, -1) for a in everyone]
        case Collective.REDUCE_SCATTER:
            blocks = [(-1, b) for b in everyone]
        case Collective.BROADCAST:
            blocks = [(root, -1)]
        case Collective.REDUCE:
            blocks = [(-1, root)]
        case _:
            blocks = [(-1, -1)]
    chunks: list[tuple[int, int, int]] = []
    hops: list[tuple[int, Hop]] = []
    for origin, target in blocks:
        for share in draw(shares(denominator)):
            hops += [(len(chunks), hop) for hop in draw(journeys(kind, count, origin, target))]
            chunks.append((origin, target, share))
    chunk, src, dst, round, reduce = columns(*zip(*[(c, *hop) for c, hop in hops], strict=True))
    return Plan(
        collective=kind,
        root=root,
        ranks=tuple(f"n0/gpu{rank}" for rank in everyone),
        topology="",
        segments=draw(st.sampled_from([1, 3])),
        denominator=denominator,
        chunks=Chunks(*columns(*zip(*chunks, strict=True))),
        transfers=Transfers(chunk, src, dst, round, reduce).sorted(),
    )


@st.composite
def shares(draw: st.DrawFn, whole: int) -> list[int]:
    """Positive parts that sum to ``whole``."""
    first = draw(st.integers(1, whole))
    return [whole] if first == whole else [first, whole - first]


@st.composite
def journeys(draw: st.DrawFn, kind: Collective, count: int, origin: int, target: int) -> list[Hop]:
    """How one chunk travels."""
    everyone = list(range(count))
    if kind is Collective.ALLREDUCE:
        if count & (count - 1) == 0 and draw(st.booleans()):
            return [(a, a ^ 1 << i, i, 1) for i in range(count.bit_length() - 1) for a in everyone]
        root = draw(st.sampled_from(everyone))
        inward = draw(inward_tree(root, everyone))
        after = 1 + max(hop[2] for hop in inward)
        return inward + [(a, b, round + after, 0) for a, b, round, _ in draw(outward_tree(root, everyone))]
    if kind.reduces:
        return draw(inward_tree(target, everyone))
    if target == -1:
        return draw(outward_tree(origin, everyone))
    others = [rank for rank in everyone if rank not in (origin, target)]
    relays = draw(st.lists(st.sampled_from(others), max_size=2, unique=True)) if others else []
    path = [origin, *relays, target]
    begin = draw(st.integers(0, 3))
    return [(a, b, begin + place, 0) for place, (a, b) in enumerate(pairwise(path))]


@st.composite
def outward_tree(draw: st.DrawFn, root: int, ranks: list[int]) -> list[Hop]:
    """From the root to every rank."""
    arrived = {root: -1}
    hops = []
    for rank in draw(st.permutations([rank for rank in ranks if rank != root])):
        parent = draw(st.sampled_from(sorted(arrived)))
        arrived[rank] = arrived[parent] + 1 + draw(st.integers(0, 1))
        hops.append((parent, rank, arrived[rank], 0))
    return hops


@st.composite
def inward_tree(draw: st.DrawFn, root: int, ranks: list[int]) -> list[Hop]:
    """From every rank to the root, adding."""
    outward = draw(outward_tree(root, ranks))
    last = max(hop[2] for hop in outward)
    return [(b, a, last - round, 1) for a, b, round, _ in outward]
