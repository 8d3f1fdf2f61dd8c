"""A plan as an MSCCL++ execution plan (JSON): one-sided puts into the peer's memory, signals and waits.

Chunks never meet, so they are dealt out to **groups** of threadblocks that need not know of each other, and inside a
group every threadblock does the same with its own slice of each chunk. A group goes round by round: put, signal,
wait, add. Nothing is put where something else still lies: sums arrive in fresh scratch, and every rank first tells
those that will write to it that it has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from synth.collective import Collective
from synth.documents import Json
from synth.errors import PlanError
from synth.formats.travels import Spot, Travel, Travels, lay_out
from synth.plan import Plan
from synth.plan.program import Buffer

THREADBLOCKS = 108
"""Most of a GPU by default; all must be resident at once."""
INSTANCES = 8
"""Threadblocks of a group, where there is room for so many."""
MAX_OPS = 64
"""Operations of a threadblock."""
MAX_CHANNELS = 16
"""Channels, and remote buffers, of each type of a threadblock."""
MAX_PER_OP = 8
"""Channels of an operation."""
UNLIMITED = 2**64 - 1

_NAMES = {
    Collective.ALLREDUCE: "allreduce",
    Collective.ALLGATHER: "allgather",
    Collective.REDUCE_SCATTER: "reducescatter",
    Collective.ALLTOALL: "alltoall",
}
"""Its other collectives are called custom."""
_TYPES = {Buffer.INPUT: "i", Buffer.OUTPUT: "o", Buffer.SCRATCH: "s"}


def to_document(plan: Plan, *, in_place: bool = False, threadblocks: int = THREADBLOCKS) -> dict[str, Json]:
    """Translate a plan.

    Args:
        plan: valid. Ranks on one node (the part of their device id before the slash) use memory channels, others port
            channels.
        in_place: whether input and output are the same memory.
        threadblocks: most of one GPU.

    Raises:
        PlanError: the format cannot express it; the message says why.
    """
    if threadblocks < 1:
        raise PlanError(f"plan: needs a threadblock at least, not {threadblocks}")
    travels = lay_out(plan, in_place=in_place, staged=True)
    nodes = [rank.rpartition("/")[0] for rank in plan.ranks]
    groups = _fewest_groups(travels, nodes, threadblocks)
    instances = max(1, min(INSTANCES, threadblocks // groups))
    return {
        "name": f"synth {plan.collective.value} {plan.digest[:12]}",
        "collective": _NAMES.get(plan.collective, "custom"),
        "protocol": "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "gpus": [
            _Gpu(travels, rank, nodes, tuple(_group(travels, rank, nodes, groups))).document(instances)
            for rank in range(len(plan.ranks))
        ],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": plan.min_bytes,
        "max_message_size": UNLIMITED if plan.max_bytes >= 2**62 else plan.max_bytes,
    }


def _fewest_groups(travels: Travels, nodes: Sequence[str], threadblocks: int) -> int:
    """Over how many groups chunks must be dealt out for every threadblock to stay within the limits."""
    ranks, chunks = range(len(travels.plan.ranks)), max(len(travels.plan.chunks), 1)
    count = 1
    while True:
        groups = [group for rank in ranks for group in _group(travels, rank, nodes, count)]
        excess = max((group.excess for group in groups), default=0)
        if excess <= 1:
            return count
        if count == min(chunks, threadblocks):
            break
        count = min(chunks, threadblocks, max(count + 1, int(count * min(excess, 2))))
    worst = max(groups, key=lambda group: group.excess)
    raise PlanError(
        f"plan: a threadblock of rank {worst.rank} needs {len(worst.ops)} operations and {worst.channels} channels; "
        f"MSCCL++ has at most {MAX_OPS} and {MAX_CHANNELS}, and a GPU at most {threadblocks} threadblocks"
    )


def _group(travels: Travels, rank: int, nodes: Sequence[str], groups: int) -> Iterator[_Group]:
    """A rank's groups; a chunk is in the same group on all ranks."""
    mine = [travel for travel in travels.travels if rank in (travel.src, travel.dst)]
    for number in range(groups):
        yield _Group(travels, rank, nodes, [travel for travel in mine if travel.chunk % groups == number], not number)


@dataclass
class _Group:
    """What each threadblock of one group of one rank does.

    Attributes:
        ops: operations, without what tells a threadblock its slice.
        peers: by channel type, in the order in which operations name their channels.
        remote: by channel type, (peer, buffer) in the order in which operations name them.
    """

    travels: Travels
    rank: int
    nodes: Sequence[str]
    mine: list[Travel]
    copies: bool
    ops: list[dict[str, Json]] = field(default_factory=list)
    peers: dict[str, list[int]] = field(default_factory=lambda: {"memory": [], "port": []})
    remote: dict[str, list[tuple[int, Buffer]]] = field(default_factory=lambda: {"memory": [], "port": []})

    def __post_init__(self) -> None:
        for travel in self.mine:
            peer = travel.dst if travel.src == self.rank else travel.src
            if peer not in self.peers[self.kind(peer)]:
                self.peers[self.kind(peer)].append(peer)
        for peers in self.peers.values():
            peers.sort()
        if self.copies:
            for copy in self.travels.copies:
                if copy.rank == self.rank:
                    self.ops.append(_local("copy", [copy.source], copy.target, copy.parts))
        self.notify("signal", {travel.src for travel in self.mine if travel.dst == self.rank})
        self.notify("wait", {travel.dst for travel in self.mine if travel.src == self.rank})
        self.nop()
        for _, together in groupby(self.mine, key=lambda travel: travel.round):
            self.round(list(together))
        while self.ops and self.ops[-1]["name"] == "nop":
            self.ops.pop()

    @property
    def channels(self) -> int:
        """Channels, or remote buffers, of the type that needs most."""
        return max(len(names) for table in (self.peers, self.remote) for names in table.values())

    @property
    def excess(self) -> float:
        """By how much the tightest limit is exceeded; up to 1 where none is."""
        return max(len(self.ops) / MAX_OPS, self.channels / MAX_CHANNELS)

    def kind(self, peer: int) -> str:
        """Channel type to a peer."""
        return "memory" if self.nodes[peer] == self.nodes[self.rank] else "port"

    def round(self, together: list[Travel]) -> None:
        """Put, signal, wait, then sums and copies of what had to land in scratch."""
        sending = [travel for travel in together if travel.src == self.rank]
        arriving = sorted((t for t in together if t.dst == self.rank), key=lambda t: (t.chunk, t.src))
        self.put(sending)
        targets = {travel.dst for travel in sending}
        if sending:
            self.nop()
            self.notify("signal", targets)
        self.notify("wait", {travel.src for travel in arriving})
        self.notify("flush", {peer for peer in targets if self.kind(peer) == "port"})
        self.nop()
        written: set[Spot] = set()
        for travel in arriving:
            if travel.stage is None:
                continue
            if travel.target in written:
                self.nop()
                written.clear()
            written.add(travel.target)
            sources = [travel.stage] if travel.base is None else [travel.base, travel.stage]
            self.ops.append(_local("copy" if travel.base is None else "re", sources, travel.target, travel.parts))
        if written:
            self.nop()

    def put(self, sending: Iterable[Travel]) -> None:
        """Puts from one buffer over one type of channel share an operation."""

        def where(travel: Travel) -> tuple[str, Buffer]:
            return self.kind(travel.dst), travel.source.buffer

        for (kind, _), batch in groupby(sorted(sending, key=where), key=where):
            for some in _batches(list(batch)):
                self.ops.append(
                    {
                        "name": "put",
                        "src_buff": [_part(travel.source, travel.parts) for travel in some],
                        "dst_buff": [self.remote_part(kind, travel) for travel in some],
                        "channel_ids": [self.peers[kind].index(travel.dst) for travel in some],
                        "channel_type": kind,
                    }
                )

    def remote_part(self, kind: str, travel: Travel) -> dict[str, Json]:
        """Where a travel lands, in the peer's memory."""
        spot = travel.stage or travel.target
        name = (travel.dst, spot.buffer)
        if name not in self.remote[kind]:
            self.remote[kind].append(name)
        return {"buffer_id": self.remote[kind].index(name), "index": spot.first, "size": travel.parts}

    def notify(self, name: str, peers: set[int]) -> None:
        """A signal, wait or flush for each peer."""
        for kind, known in self.peers.items():
            numbers = [number for number, peer in enumerate(known) if peer in peers]
            for some in _batches(numbers):
                self.ops.append({"name": name, "channel_ids": some, "channel_type": kind})

    def nop(self) -> None:
        """Make all threads of the block wait for each other."""
        if self.ops and self.ops[-1]["name"] != "nop":
            self.ops.append({"name": "nop"})


@dataclass(frozen=True)
class _Gpu:
    """One rank's part of the document."""

    travels: Travels
    rank: int
    nodes: Sequence[str]
    groups: tuple[_Group, ...]

    def document(self, instances: int) -> dict[str, Json]:
        remote = sorted(
            {(kind, *name) for group in self.groups for kind in group.remote for name in group.remote[kind]}
        )
        places = {name: number for number, name in enumerate(remote)}
        connected: dict[str, list[int]] = {"memory": [], "port": []}
        blocks: list[dict[str, Json]] = []
        for group in self.groups:
            for instance in range(instances if group.ops else 0):
                channels = []
                for kind, peers in group.peers.items():
                    if peers:
                        first = len(connected[kind])
                        channels.append({"channel_type": kind, "channel_ids": list(range(first, first + len(peers)))})
                        connected[kind] += peers
                references = [
                    {
                        "access_channel_type": kind,
                        "remote_buffer_ids": [places[kind, peer, buffer] for peer, buffer in names],
                    }
                    for kind, names in group.remote.items()
                    if names
                ]
                blocks.append(
                    {
                        "id": len(blocks),
                        "ops": [_sliced(op, instance, instances) for op in group.ops],
                        "channels": channels,
                        "remote_buffer_refs": references,
                    }
                )
        return {
            "id": self.rank,
            "input_chunks": self.travels.inputs,
            "output_chunks": self.travels.outputs,
            "scratch_chunks": self.travels.scratch[self.rank],
            "threadblocks": blocks,
            "channels": [{"channel_type": kind, "connected_to": peers} for kind, peers in connected.items() if peers],
            "remote_buffers": [
                {"rank": peer, "type": _TYPES[buffer], "access_channel_types": [kind]} for kind, peer, buffer in remote
            ],
            "semaphores": [],
        }


def _sliced(op: dict[str, Json], instance: int, instances: int) -> dict[str, Json]:
    """An operation as one threadblock of a group does it."""
    if instances == 1 or "src_buff" not in op:
        return op
    return op | {"tbg_info": {"tb_id": instance, "tbg_size": instances}}


def _local(name: str, sources: Sequence[Spot], target: Spot, parts: int) -> dict[str, Json]:
    op: dict[str, Json] = {
        "name": name,
        "src_buff": [_part(spot, parts) for spot in sources],
        "dst_buff": [_part(target, parts)],
    }
    return op | ({"reduce_op": "sum"} if name == "re" else {})


def _part(spot: Spot, parts: int) -> dict[str, Json]:
    return {"type": _TYPES[spot.buffer], "index": spot.first, "size": parts}


def _batches(items: list[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(items), MAX_PER_OP):
        yield items[begin : begin + MAX_PER_OP]
