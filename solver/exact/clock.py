"""When a search has to stop."""

from __future__ import annotations

import time
from dataclasses import dataclass

from solver.backend import Cancel


@dataclass(frozen=True, slots=True)
class Clock:
    """A deadline and somebody who may ask to stop before it.

    Attributes:
        deadline: ``time.monotonic()`` at which to stop.
        cancelled: asked now and then.
    """

    deadline: float
    cancelled: Cancel = lambda: False

    @classmethod
    def after(cls, seconds: float, cancelled: Cancel = lambda: False) -> Clock:
        """A clock that rings in so many seconds."""
        return cls(time.monotonic() + seconds, cancelled)

    @property
    def left(self) -> float:
        """Seconds until the deadline, at least a hundredth."""
        return max(self.deadline - time.monotonic(), 0.01)

    def over(self) -> bool:
        """Whether to stop now."""
        return time.monotonic() >= self.deadline or self.cancelled()
