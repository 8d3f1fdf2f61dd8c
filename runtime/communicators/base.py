"""What the runtime needs of a transport: one interface, several implementations, one contract test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runtime.buffers import Buffers, Memory
from runtime.elements import Element, Reduction
from synth.collective import Collective
from synth.errors import RemoteError
from synth.plan.program import Message

DEADLINE = 30.0
"""Seconds a peer may stay silent, unless ``SYNTH_DEADLINE`` or ``attach(deadline=)`` say otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One collective call, as native collectives need it.

    Attributes:
        collective: which.
        counts: elements, in the shape that :mod:`synth.plan.layout` describes.
        source: this rank's input, bytes.
        target: this rank's output, bytes.
        element: type of the elements.
        reduction: how contributions are combined, for reductions.
        root: for broadcast and reduce.
        shift: bytes from the input's first to the output's first where the two share memory; None where they do not.
    """

    collective: Collective
    counts: np.ndarray
    source: Any
    target: Any
    element: Element
    reduction: Reduction = Reduction.SUM
    root: int = 0
    shift: int | None = None


class Communicator(Protocol):
    """A fixed set of ranks that can exchange messages.

    Every method that waits for peers raises :class:`synth.errors.RemoteError` once one has been silent for
    ``deadline`` seconds, and then the communicator is aborted: nothing works on it any more.
    """

    name: str
    rank: int
    size: int
    deadline: float
    memory: Memory

    @property
    def failure(self) -> RemoteError | None:
        """What ended it, None while it works."""

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """Exchange the messages of one round; all of them progress together.

        On a device this returns once the group is enqueued; :meth:`synchronize` waits for it.
        """

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's few bytes, equally many from each rank, by rank; on the host."""

    def native(self, call: Call) -> bool:
        """Carry out a collective with the library's own; False, at once and on every rank, where it has none."""

    def synchronize(self) -> None:
        """Wait until everything issued so far is done."""

    def is_valid(self) -> bool:
        """Whether it still works."""

    def abort(self, reason: str = "") -> None:
        """Give up at once, without waiting for any peer, and tell the peers that can still hear it."""

    def close(self) -> None:
        """Release everything; waits for peers as far as the transport needs it, within the deadline."""


class Splitting(Communicator, Protocol):
    """A communicator that can be split into parts; a part ends and fails with the whole."""

    concurrent: bool
    """Whether parts may run beside each other; where not, one after the other in the same order on every rank."""

    def split(self, color: int | None) -> Part | None:
        """A part of the ranks that gave the same color, in this one's order; None for those that gave none.

        All ranks call it, with nothing under way.
        """


class Part(Communicator, Protocol):
    """Some ranks of another communicator."""

    def fork(self) -> None:
        """What follows may overtake what is enqueued elsewhere, until :meth:`join`."""

    def join(self) -> None:
        """What follows elsewhere waits for what was enqueued since :meth:`fork`."""
