"""An MSCCL XML program as a value: what the text says, before anyone judges whether it is right.

Every GPU runs its **threadblocks** at the same time; a threadblock does its **steps** in order. A threadblock sends to
at most one peer and receives from at most one; ``(sender, receiver, channel)`` is a **connection**, a queue in which
the k-th message sent is the k-th received. Offsets and counts are in chunks; the runtime cuts chunks into slices and
repeats the whole list of steps for each slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NOBODY = -1
"""Instead of a peer, a threadblock or a step."""


class Buffer(StrEnum):
    """The three memories of a GPU."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class Kind(StrEnum):
    """What a step does: ``incoming`` is the message it receives, ``+`` the reduction.

    Attributes:
        receives: whether it takes a message.
        sends: whether it gives a message.
        adds: whether it reduces.
        reads_src: whether it reads its source.
        writes_dst: whether it writes its destination.
    """

    SEND = "s"
    """Send src."""
    RECEIVE = "r"
    """dst = incoming."""
    RECEIVE_COPY_SEND = "rcs"
    """dst = incoming; send it on."""
    RECEIVE_REDUCE_SEND = "rrs"
    """Send incoming + src on, store nothing."""
    RECEIVE_REDUCE_COPY = "rrc"
    """dst = incoming + src."""
    RECEIVE_REDUCE_COPY_SEND = "rrcs"
    """dst = incoming + src; send it on."""
    COPY = "cpy"
    """dst = src."""
    REDUCE = "re"
    """dst = dst + src."""
    NOP = "nop"
    """Only waits: carries a second dependency for the step after it."""

    def __init__(self, code: str) -> None:
        self.receives = code[0] == "r" and code != "re"
        self.sends = code[-1] == "s"
        self.adds = code == "re" or code.startswith("rr")
        self.reads_src = self.adds or code in ("s", "cpy")
        self.writes_dst = code not in ("s", "rrs", "nop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a threadblock.

    Attributes:
        number: position in its threadblock as written, from 0.
        kind: what it does.
        src: buffer it reads, where it reads one; else informational.
        src_offset: first chunk, -1 where unused.
        dst: buffer it writes, where it writes one; else informational.
        dst_offset: first chunk, -1 where unused.
        count: consecutive chunks.
        after_block: id of the threadblock of the same GPU it waits for, or ``NOBODY``.
        after_step: step there.
        publishes: whether other threadblocks may wait for it (``hasdep``).
        round: the plan's round, where a comment of ours says it.
        line: in the file; 0 when it was not read from one.
    """

    number: int
    kind: Kind
    src: Buffer = Buffer.INPUT
    src_offset: int = NOBODY
    dst: Buffer = Buffer.OUTPUT
    dst_offset: int = NOBODY
    count: int = 0
    after_block: int = NOBODY
    after_step: int = NOBODY
    publishes: bool = False
    round: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Threadblock:
    """Steps in order, with the one peer it sends to and the one it receives from."""

    id: int
    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One rank's program and how many chunks its buffers hold."""

    id: int
    inputs: int
    outputs: int
    scratch: int
    threadblocks: tuple[Threadblock, ...]
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A whole file.

    Attributes:
        name: label.
        collective: as spelled in the file.
        protocol: Simple, LL or LL128; decides how many messages fit into a connection.
        channels: ``nchannels``.
        chunks_per_loop: ``nchunksperloop``, the largest buffer of any GPU in chunks.
        gpus: in order of id.
        in_place: usable where input and output are the same memory.
        out_of_place: usable where they are not.
        attributes: of ``algo`` as written, for what each runtime asks of them.
        skipped: names of elements that no runtime reads.
        faults: what the runtimes' hand-written parsers stumble over and an XML parser does not.
    """

    name: str
    collective: str
    protocol: str
    channels: int
    chunks_per_loop: int
    gpus: tuple[Gpu, ...]
    in_place: bool
    out_of_place: bool
    attributes: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """How many GPUs the file describes."""
        return len(self.gpus)

    @property
    def steps(self) -> int:
        """How many steps the file has."""
        return sum(len(block.steps) for gpu in self.gpus for block in gpu.threadblocks)
