"""Which schedule each operation runs: the plan, the direct exchange, or the library's own collective."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runtime.direct import direct_plan
from synth.collective import Collective
from synth.plan import Plan
from synth.plan.layout import unserved
from synth.plan.lowering import Lowering
from synth.plan.program import Program

PROGRAMS_KEPT = 64
"""Sized programs kept per schedule; counts that come back find theirs."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What is asked, apart from counts and element type: ranks agree on one plan per operation.

    Attributes:
        collective: which.
        root: for broadcast and reduce.
        pairs: for sendrecv.
    """

    collective: Collective
    root: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """For logs and statistics."""
        return self.collective.value if self.root is None else f"{self.collective.value} root {self.root}"


class Prepared:
    """A plan followed through this rank, with the programs sized so far."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan = plan
        self._rank = rank
        self._programs: OrderedDict[tuple[bytes, int], Program] = OrderedDict()

    @cached_property
    def _lowering(self) -> Lowering:
        return Lowering(self.plan, self._rank)

    def program(self, counts: np.ndarray, align: int) -> Program:
        """The program for these counts; errors as :meth:`synth.plan.lowering.Lowering.program`."""
        key = (counts.tobytes(), align)
        if key not in self._programs:
            self._programs[key] = self._lowering.program(counts, align=align)
            if len(self._programs) > PROGRAMS_KEPT:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return self._programs[key]


class Schedules:
    """What is ready for one operation.

    Args:
        operation: what it serves.
        rank: this rank.
        size: ranks of the group.
        plan: verified and agreed on by all ranks; None when there is none.
    """

    def __init__(self, operation: Operation, rank: int, size: int, plan: Plan | None) -> None:
        self.operation = operation
        self.plan = None if plan is None else Prepared(plan, rank)
        self.forced: str | None = None  # ``plan``, ``direct`` or ``native`` once a trial has decided
        self._rank, self._size = rank, size

    @cached_property
    def direct(self) -> Prepared:
        """The one grouped exchange."""
        asked = self.operation
        pairs = asked.pairs or None
        return Prepared(direct_plan(asked.collective, self._size, root=asked.root or 0, pairs=pairs), self._rank)

    def planned(self, counts: np.ndarray, bytes: int) -> Prepared | None:
        """The plan, where it serves these counts at this size; decided by what all ranks know alike."""
        if self.plan is None or self.forced in ("direct", "native"):
            return None
        plan = self.plan.plan
        fits = plan.min_bytes <= bytes <= plan.max_bytes and unserved(plan, counts) is None
        return self.plan if fits else None
