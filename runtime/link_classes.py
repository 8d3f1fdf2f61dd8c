"""One communicator per link class, for plans whose edges use more than one.

In NCCL the channels per peer are the fewest of any peer of a communicator, so one peer over the network slows every
peer over NVLink. Each class gets parts of the communicator, one per set of ranks that its edges connect; a round's
messages go to their classes' parts, one class after the other; on streams of their own, and the next round waits for
all, where the order of launches is the same on all ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from runtime.buffers import Buffers, Memory
from runtime.communicators.base import Communicator, Part, Splitting
from runtime.slices import edges_of
from synth.errors import InputError, SynthError
from synth.plan import Plan
from synth.plan.program import Message
from synth.topology import LinkClass, Routes, Topology

VARIABLE = "SYNTH_LINK_CLASSES"
"""``on``: wherever the transport can be split; default ``off``: what it gains was not measured."""
_RANKED = (LinkClass.NETWORK, LinkClass.SMP, LinkClass.PCIE, LinkClass.C2C, LinkClass.NVLINK)
"""An edge is of the first of these that lies on its route; SMP counts as PCIe, chip to chip as NVLink."""
_SAME = {LinkClass.SMP: LinkClass.PCIE, LinkClass.C2C: LinkClass.NVLINK}


class LinkClasses:
    """Carries the rounds of one plan, each message on the communicator of its link class.

    Args:
        memory: of the communicator that was split.
        plan: whose messages it carries.
        parts: by class, in the same order on all ranks; None where this rank has no edge of it.
        concurrent: whether classes may run beside each other.
        peers: by peer, position of the class and the peer's rank in that class's part.
    """

    def __init__(
        self,
        memory: Memory,
        plan: Plan,
        parts: Mapping[LinkClass, Part | None],
        peers: Mapping[int, tuple[LinkClass, int]],
        concurrent: bool,
    ) -> None:
        self.memory, self.plan, self._concurrent = memory, plan, concurrent
        self._parts, self._peers = parts, peers

    @property
    def reason(self) -> str:
        """For the line that says which plan is in force."""
        return f"a communicator each for {' and '.join(self._parts)}"

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        out, back = self._by_class(sends), self._by_class(receives)
        used = [
            (part, kind) for kind, part in self._parts.items() if part is not None and (kind in out or kind in back)
        ]
        aside = [part for part, _ in used] if self._concurrent and len(used) > 1 else []
        for part in aside:
            part.fork()
        for part, kind in used:
            part.group(out.get(kind, ()), back.get(kind, ()), buffers, round)
        for part in aside:
            part.join()

    def _by_class(self, messages: Sequence[Message]) -> dict[LinkClass, list[Message]]:
        found: dict[LinkClass, list[Message]] = {}
        for message in messages:
            kind, peer = self._peers[message.peer]
            found.setdefault(kind, []).append(replace(message, peer=peer))
        return found


def by_class(
    communicator: Communicator,
    plan: Plan,
    topology: Topology | None,
    devices: Sequence[str],
    variables: Mapping[str, str],
) -> LinkClasses | None:
    """Split a communicator for a plan; None, on every rank, where one communicator serves all.

    Args:
        communicator: all its ranks call this with the same plan.
        plan: agreed on.
        topology: says what an edge is made of.
        devices: of each rank; empty for the topology's GPUs in order.
        variables: the environment.

    Raises:
        RemoteError: a rank does not answer.
    """
    wanted = variables.get(VARIABLE) or "off"
    if wanted not in ("on", "off"):
        raise InputError(f"{VARIABLE}: {wanted!r} is not known; must be off or on", subject=VARIABLE)
    if not hasattr(communicator, "split"):
        return None
    whole: Splitting = communicator  # type: ignore[assignment]
    found: dict[tuple[int, int], LinkClass] = {}
    if topology is not None and wanted == "on":
        found = classes_of(plan, topology, devices)
    kinds = sorted(set(found.values()))
    own = hashlib.sha256(repr((sorted(found.items()), whole.concurrent)).encode()).digest()
    if len(set(whole.gather(own))) != 1 or len(kinds) < 2:
        return None
    parts: dict[LinkClass, Part | None] = {}
    peers: dict[int, tuple[LinkClass, int]] = {}
    for kind in kinds:
        islands = connected(plan.members, [pair for pair, of in found.items() if of is kind])
        island = next((ranks for ranks in islands if whole.rank in ranks), None)
        parts[kind] = whole.split(None if island is None else island[0])
        for peer in island or ():
            if kind in (found.get((whole.rank, peer)), found.get((peer, whole.rank))):
                peers[peer] = (kind, island.index(peer))  # type: ignore[union-attr]
    return LinkClasses(whole.memory, plan, parts, peers, whole.concurrent)


def classes_of(plan: Plan, topology: Topology, devices: Sequence[str] = ()) -> dict[tuple[int, int], LinkClass]:
    """The link class of every edge that a plan uses, both directions of a pair alike; empty where it is not known."""
    try:
        routes = Routes.among(topology, tuple(devices or topology.gpus)[: plan.members])
    except SynthError:
        return {}
    pairs = edges_of(plan)
    found: dict[tuple[int, int], LinkClass] = {}
    for a, b in sorted({(min(pair), max(pair)) for pair in pairs}):
        if max(a, b) >= routes.ranks:
            return {}
        links = np.concatenate([routes.route(a, b), routes.route(b, a)]).tolist()
        on_route = {topology.links[link].link_class for link in links}
        first = next((kind for kind in _RANKED if kind in on_route), None)
        if first is None:
            return {}
        kind = _SAME.get(first, first)
        found.update({pair: kind for pair in ((a, b), (b, a)) if pair in pairs})
    return found


def connected(ranks: int, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Sets of ranks that the pairs connect, each ascending; ranks without a pair are in none."""
    leader = list(range(ranks))

    def find(rank: int) -> int:
        while leader[rank] != rank:
            rank = leader[rank]
        return rank

    for a, b in pairs:
        low, high = sorted((find(a), find(b)))
        leader[high] = low
    sets: dict[int, list[int]] = {}
    for rank in sorted({rank for pair in pairs for rank in pair}):
        sets.setdefault(find(rank), []).append(rank)
    return list(sets.values())
