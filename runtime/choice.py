"""Never slower than without synth: a short timed trial of what is ready, decided alike on all ranks.

The trial runs at the first call of an operation at a size class (a power of two), on that call's own data: every
repetition leaves the right result in the output. All ranks decide from the same gathered times, the slowest rank's.
"""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runtime.communicators import Communicator
from synth.units import format_bytes, format_seconds

REPEATS = 5
"""Timed repetitions of each candidate, after one that is not timed."""
BUDGET_SECONDS = 1.0
"""No further repetition is begun that would make a trial last longer; every candidate runs at least once."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial found.

    Attributes:
        operation: name.
        bytes: size of the call it ran in.
        seconds: by candidate, ``plan <digest>``, ``native`` and ``direct``: median of the slowest rank's times.
        order: candidates, the fastest first; of equally fast ones the library's own.
    """

    operation: str
    bytes: int
    seconds: Mapping[str, float]
    order: tuple[str, ...]

    @property
    def used(self) -> str:
        """The candidate in force."""
        return self.order[0]

    @property
    def reason(self) -> str:
        """One line with all numbers."""
        said = ", ".join(f"{name} {format_seconds(value)}" for name, value in self.seconds.items())
        return f"trial at {format_bytes(self.bytes)}: {said}; {self.used} is used"


def hold_trial(
    communicator: Communicator, operation: str, bytes: int, candidates: Mapping[str, Callable[[], bool]]
) -> Verdict:
    """Time the candidates in turns; the same verdict on every rank.

    Args:
        communicator: all its ranks call this with the same candidates.
        operation: for the verdict.
        bytes: for the verdict.
        candidates: what carries the call out; False, at once and on every rank, where it cannot. The library's own
            first.

    Raises:
        RemoteError: a rank does not answer.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    spent = 0.0
    communicator.gather(bytes_of(0.0))  # ranks start together
    for turn in range(REPEATS + 1):
        for name in list(seconds):
            began = time.perf_counter()
            ran = candidates[name]()
            communicator.synchronize()
            took = time.perf_counter() - began if ran else -1.0
            everyone = [struct.unpack("d", one)[0] for one in communicator.gather(bytes_of(took))]
            if min(everyone) < 0:
                del seconds[name]
                continue
            seconds[name].append(max(everyone))
            spent += max(everyone)
        if spent * (turn + 2) / (turn + 1) > BUDGET_SECONDS:
            break
    medians = {name: statistics.median(times[1:] or times) for name, times in seconds.items()}
    return Verdict(operation, bytes, medians, tuple(sorted(medians, key=lambda name: medians[name])))


def bytes_of(seconds: float) -> bytes:
    """A time as it is gathered."""
    return struct.pack("d", seconds)
