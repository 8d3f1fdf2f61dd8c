"""A rank's program: what lowering makes of a plan and real counts, and what an executor carries out.

A program is a list of rounds. A **round** is one group of messages, at most one to and one from each peer; before it,
scattered pieces are packed into scratch; after it, pieces are copied out of scratch and contributions are added. All
offsets and lengths are in elements, so a program does not depend on the element type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=Any)


class Buffer(IntEnum):
    """The three memories a program works on."""

    INPUT = 0
    """What the caller gave; never written."""
    OUTPUT = 1
    """What the caller gets."""
    SCRATCH = 2
    """Relayed pieces and packed messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """One contiguous send or receive.

    Attributes:
        peer: the other rank.
        buffer: where it starts.
        offset: element in ``buffer``.
        length: elements, at least 1; the same on both sides.
    """

    peer: int
    buffer: Buffer
    offset: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Local copies that do not overlap, as columns of equal length."""

    dst_buffer: np.ndarray
    dst_offset: np.ndarray
    src_buffer: np.ndarray
    src_offset: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.length)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Local additions: region i becomes the sum of the terms ``first[i]`` to ``first[i + 1]``, in that order.

    A region may be its own first term. The order of the terms is fixed by the plan, so results are reproducible.

    Attributes:
        buffer: [regions] where the result goes.
        offset: [regions]
        length: [regions] elements.
        first: [regions + 1] where each region's terms begin.
        term_buffer: [terms]
        term_offset: [terms]
    """

    buffer: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    first: np.ndarray
    term_buffer: np.ndarray
    term_offset: np.ndarray

    def __len__(self) -> int:
        return len(self.length)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One group of messages with the local work around it.

    Attributes:
        number: the plan's round.
        pack: copies before the group.
        sends: at most one per peer, by peer.
        receives: at most one per peer, by peer.
        unpack: copies after the group.
        sums: additions after the group.
    """

    number: int
    pack: Copies
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    unpack: Copies
    sums: Sums


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What one rank does.

    Attributes:
        rank: whose it is.
        inputs: elements of the input buffer.
        outputs: elements of the output buffer.
        scratch: elements of scratch it needs.
        local: copies from input to output that need no peer.
        rounds: those in which this rank sends or receives something.
    """

    rank: int
    inputs: int
    outputs: int
    scratch: int
    local: Copies
    rounds: tuple[Round, ...]

    @property
    def sent(self) -> int:
        """Elements this rank sends, relayed ones included."""
        return sum(message.length for round in self.rounds for message in round.sends)


def pick(columns: T, which: np.ndarray | slice) -> T:
    """Some rows of a dataclass of equally long columns."""
    return type(columns)(*(getattr(columns, name)[which] for name in columns.__slots__))  # type: ignore[no-any-return]
