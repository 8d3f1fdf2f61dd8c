"""Moving experts from one placement to the next: who fetches what from whom, in rounds of one peer per rank.

The steps of one layer belong together: a rank receives into spare memory and puts the experts into their slots when
the layer is done, because a slot that is filled early may still be another rank's source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.placement.problem import Placement, Shape
from synth.collective import Collective
from synth.errors import TopologyError
from synth.plan import Chunks, Plan, Transfers
from synth.topology import Routes


@dataclass(frozen=True, slots=True)
class Fetch:
    """One expert that a rank needs.

    Attributes:
        expert: logical expert.
        src: rank that holds it before.
        dst: rank that will hold it.
        slot: physical slot it goes to.
    """

    expert: int
    src: int
    dst: int
    slot: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """A ``sendrecv`` plan and what its pairs carry; pair i of the demand moves expert ``fetches[i]``.

    Attributes:
        layer: of the model.
        fetches: one per pair.
        plan: its rounds give every rank at most one peer.
    """

    layer: int
    fetches: tuple[Fetch, ...]
    plan: Plan

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The demand's pairs, (from, to)."""
        return tuple((fetch.src, fetch.dst) for fetch in self.fetches)


def migration(previous: Placement, new: Placement, routes: Routes, *, max_bytes: int = 2**40) -> list[Step]:
    """Plan the moves layer by layer.

    Args:
        previous: placement in force.
        new: placement to reach.
        routes: among the ranks, in rank order.
        max_bytes: largest expert the plans are stated for.

    Raises:
        TopologyError: a rank cannot reach any holder of an expert it needs.
    """
    hops = _next_hops(routes)
    cost = routes.hop_weights(1.0 / routes.topology.bytes_per_s)
    steps = []
    for layer in range(len(new.phy2log)):
        fetches = _fetches(previous, new, layer, hops, cost)
        for wave in _waves(fetches):
            ordered = tuple(sorted(wave, key=lambda fetch: (fetch.src, fetch.dst)))
            paths = [_path(hops, fetch.src, fetch.dst) for fetch in ordered]
            steps.append(Step(layer=layer, fetches=ordered, plan=_plan(paths, routes, max_bytes)))
    return steps


def _next_hops(routes: Routes) -> np.ndarray:
    """[ranks, ranks] next rank on the way with the fewest hops; -1 where there is none."""
    ranks = routes.ranks
    step = np.where(routes.exists, np.arange(ranks)[None, :], -1)
    distance = np.where(routes.exists, 1, 0)
    reach = routes.exists.copy()
    for hops in range(2, ranks):
        wider = ~reach & ~np.eye(ranks, dtype=bool) & ((routes.exists.astype(float) @ (distance == hops - 1)) > 0)
        if not wider.any():
            break
        for a, b in np.argwhere(wider):
            step[a, b] = int(np.flatnonzero(routes.exists[a] & (distance[:, b] == hops - 1))[0])
        distance[wider] = hops
        reach |= wider
    return step


def _path(hops: np.ndarray, src: int, dst: int) -> list[int]:
    path = [src]
    while path[-1] != dst:
        path.append(int(hops[path[-1], dst]))
    return path


def _fetches(previous: Placement, new: Placement, layer: int, hops: np.ndarray, cost: np.ndarray) -> list[Fetch]:
    """Every expert that is new on its rank, from the cheapest holder; among equals from the least busy one."""
    shape: Shape = new.shape
    before = previous.held[layer] > 0  # [ranks, experts]
    sends: Counter[int] = Counter()
    fetches = []
    seen: set[tuple[int, int]] = set()
    for slot, expert in enumerate(new.phy2log[layer].tolist()):
        rank = slot // shape.slots_per_rank
        if before[rank, expert] or (rank, expert) in seen:
            continue
        seen.add((rank, expert))
        holders = [int(h) for h in np.flatnonzero(before[:, expert]) if hops[h, rank] >= 0]
        if not holders:
            raise TopologyError(
                f"rank {rank}: cannot reach any rank that holds expert {expert} of layer {layer}; "
                "the previous placement and the topology do not fit",
                subject=str(rank),
            )
        src = min(holders, key=lambda holder: (cost[holder, rank], sends[holder], holder))
        sends[src] += 1
        fetches.append(Fetch(expert, src, rank, slot))
    return fetches


def _waves(fetches: Sequence[Fetch]) -> list[list[Fetch]]:
    """Split so that an ordered pair of ranks occurs once in each part, as a ``sendrecv`` demand wants."""
    waves: list[list[Fetch]] = []
    used: Counter[tuple[int, int]] = Counter()
    for fetch in fetches:
        wave = used[fetch.src, fetch.dst]
        used[fetch.src, fetch.dst] += 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append(fetch)
    return waves


def _plan(paths: Sequence[Sequence[int]], routes: Routes, max_bytes: int) -> Plan:
    chunk, src, dst, rounds = (np.array(column, dtype=np.int64) for column in zip(*_rounds(paths), strict=True))
    count = len(paths)
    return Plan(
        collective=Collective.SENDRECV,
        ranks=routes.devices,
        topology=routes.topology.fingerprint,
        segments=1,
        denominator=1,
        max_bytes=max_bytes,
        chunks=Chunks(
            np.array([path[0] for path in paths]),
            np.array([path[-1] for path in paths]),
            np.ones(count, dtype=np.int64),
        ),
        transfers=Transfers(chunk, src, dst, rounds, np.zeros(len(chunk), dtype=np.int64)).sorted(),
        solver={"strategy": "migration", "termination": "heuristic", "seed": 0},
    )


def _rounds(paths: Sequence[Sequence[int]]) -> list[tuple[int, int, int, int]]:
    """(chunk, src, dst, round): each rank talks to one peer per round, both ways at once.

    Greedy colouring of the exchange graph: in each round the pairs whose ranks still have most to do go first.
    """
    at = [0] * len(paths)
    transfers: list[tuple[int, int, int, int]] = []
    number = 0
    while open_ := [chunk for chunk, path in enumerate(paths) if at[chunk] < len(path) - 1]:
        work: Counter[int] = Counter()
        for chunk in open_:
            for rank in paths[chunk][at[chunk] :]:
                work[rank] += 1
        ready = sorted(open_, key=lambda c: (-max(work[r] for r in paths[c][at[c] : at[c] + 2]), -len(paths[c]), c))
        peer: dict[int, int] = {}
        taken: set[tuple[int, int]] = set()
        for chunk in ready:
            here, there = paths[chunk][at[chunk] : at[chunk] + 2]
            if peer.get(here, there) != there or peer.get(there, here) != here or (here, there) in taken:
                continue
            peer[here], peer[there] = there, here
            taken.add((here, there))
            transfers.append((chunk, here, there, number))
        for chunk, _, _, of in reversed(transfers):
            if of != number:
                break
            at[chunk] += 1
        number += 1
    return transfers
