"""Ranks as threads of one process: for tests, examples and trying a plan without any launcher."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from runtime.buffers import Buffers, HostMemory, Memory
from runtime.communicators.base import DEADLINE, Call
from synth.errors import InvalidUsage, RemoteError
from synth.plan.program import Message


class LocalWorld:
    """The mailboxes that ``size`` ranks share; :meth:`communicator` gives each thread its end."""

    def __init__(self, size: int, *, deadline: float = DEADLINE) -> None:
        self.size = size
        self.deadline = deadline
        self.changed = threading.Condition()
        self.boxes: dict[tuple[str, int, int], deque[Any]] = {}
        self._failure: RemoteError | None = None
        self._whole: LocalWorld | None = None
        self._parts: dict[tuple[int, int], LocalWorld] = {}

    @property
    def failure(self) -> RemoteError | None:
        """What ended it, or the whole that it is a part of."""
        return self._whole.failure if self._whole is not None else self._failure

    @failure.setter
    def failure(self, failure: RemoteError) -> None:
        if self._whole is not None:
            self._whole.failure = failure
        else:
            self._failure = failure

    def part(self, turn: int, color: int, size: int) -> LocalWorld:
        """The mailboxes of a part; the same for all its ranks."""
        with self.changed:
            if (turn, color) not in self._parts:
                made = LocalWorld(size, deadline=self.deadline)
                made.changed, made._whole = self.changed, self
                self._parts[turn, color] = made
            return self._parts[turn, color]

    def communicator(self, rank: int) -> LocalCommunicator:
        """The end of one rank."""
        return LocalCommunicator(self, rank)


class LocalCommunicator:
    """One rank's end of a :class:`LocalWorld`."""

    name = "local"
    concurrent = False

    def __init__(self, world: LocalWorld, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.size = world.size
        self.deadline = world.deadline
        self.memory: Memory = HostMemory()
        self._open = True
        self._splits = 0
        self._members = list(range(world.size))  # ranks as errors name them: of the whole

    @property
    def failure(self) -> RemoteError | None:
        """See :class:`Communicator`."""
        return self.world.failure

    def group(self, sends: Sequence[Message], receives: Sequence[Message], buffers: Buffers, round: int) -> None:
        """See :meth:`Communicator.group`."""
        for message in sends:
            region = buffers.region(message.buffer, message.offset, message.length)
            self._put("data", message.peer, region.copy())
        for message in receives:
            region = buffers.region(message.buffer, message.offset, message.length)
            arrived = self._take("data", message.peer, round)
            if len(arrived) != len(region):
                raise RemoteError(
                    f"rank {self._members[message.peer]} sent {len(arrived)} bytes in round {round}; "
                    f"{len(region)} were expected",
                    rank=self._members[message.peer],
                    round=round,
                )
            region[:] = arrived

    def gather(self, data: bytes) -> list[bytes]:
        """See :meth:`Communicator.gather`."""
        for peer in range(self.size):
            self._put("host", peer, data)
        return [self._take("host", peer, None) for peer in range(self.size)]

    def native(self, call: Call) -> bool:
        """There are none."""
        return False

    def split(self, color: int | None) -> LocalCommunicator | None:
        """See :meth:`Splitting.split`."""
        members = same_color(self.gather(b"%12d" % (-1 if color is None else color)), self.rank)
        self._splits += 1
        if color is None:
            return None
        part = self.world.part(self._splits, color, len(members)).communicator(members.index(self.rank))
        part.memory, part.deadline, part._members = self.memory, self.deadline, members
        return part

    def fork(self) -> None:
        """Nothing overtakes anything here."""

    def join(self) -> None:
        """Nothing overtakes anything here."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def is_valid(self) -> bool:
        """See :meth:`Communicator.is_valid`."""
        return self._open and self.world.failure is None

    def abort(self, reason: str = "") -> None:
        """See :meth:`Communicator.abort`."""
        with self.world.changed:
            if self.world.failure is None:
                self.world.failure = RemoteError(f"rank {self.rank} gave up: {reason or 'aborted'}", rank=self.rank)
            self.world.changed.notify_all()

    def close(self) -> None:
        """See :meth:`Communicator.close`."""
        self._open = False

    def _put(self, kind: str, peer: int, item: Any) -> None:
        with self.world.changed:
            self._check()
            self.world.boxes.setdefault((kind, self.rank, peer), deque()).append(item)
            self.world.changed.notify_all()

    def _take(self, kind: str, peer: int, round: int | None) -> Any:
        world, until = self.world, time.monotonic() + self.deadline
        with world.changed:
            while True:
                self._check()
                box = world.boxes.get((kind, peer, self.rank))
                if box:
                    return box.popleft()
                if not world.changed.wait(until - time.monotonic()) and time.monotonic() >= until:
                    world.failure = silent(self._members[peer], round, self.deadline)
                    world.changed.notify_all()

    def _check(self) -> None:
        if not self._open:
            raise InvalidUsage("the communicator is closed")
        if (failure := self.world.failure) is not None:
            raise RemoteError(failure.message, rank=failure.rank, round=failure.round)


def same_color(colors: list[bytes], rank: int) -> list[int]:
    """The ranks that gave the same color as this one."""
    return [peer for peer, color in enumerate(colors) if color == colors[rank]]


def silent(peer: int | None, round: int | None, deadline: float) -> RemoteError:
    """The error for a peer that did not answer in time."""
    who = "a rank" if peer is None else f"rank {peer}"
    where = "before the first round" if round is None else f"in round {round}"
    return RemoteError(
        f"{who} did not answer {where} within {deadline:g} s; it died, never arrived, or waits for another rank; "
        "close this group and attach again",
        rank=peer,
        round=round,
    )
