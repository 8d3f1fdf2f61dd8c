"""Which schedule each operation runs: the plan, the direct exchange, or the library's own collective."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runtime.choice import Verdict
from runtime.direct import direct_plan
from runtime.link_classes import LinkClasses
from runtime.pricing import Pricing
from runtime.slices import serves
from synth.collective import Collective
from synth.plan import Plan
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

    def __init__(self, plan: Plan, rank: int, name: str = "") -> None:
        self.plan = plan
        self.name = name or f"plan {plan.digest[:12]}"
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
        others: further plans that were agreed on, for an alltoall.
        pricing: of the plan, the others and the direct exchange; None leaves the first that fits.
        trial: whether the plan has to win a trial first.
        classes: the plan's communicators by link class; None where one serves all.
    """

    def __init__(
        self,
        operation: Operation,
        rank: int,
        size: int,
        plan: Plan | None,
        *,
        others: Sequence[Plan] = (),
        pricing: Pricing | None = None,
        trial: bool = False,
        classes: LinkClasses | None = None,
    ) -> None:
        self.operation, self.name = operation, operation.name
        self.plan = None if plan is None else Prepared(plan, rank)
        self.forced: str | None = None  # ``plan``, ``direct`` or ``native`` once a trial has decided
        self.trial, self.classes = trial, classes
        self.verdicts: dict[Hashable, Verdict] = {}
        self._ready = [Prepared(other, rank) for other in others]
        if self.plan is not None:
            self._ready.insert(0, self.plan)
        self._pricing = pricing
        self._rank, self._size = rank, size

    @cached_property
    def direct(self) -> Prepared:
        """The one grouped exchange."""
        asked = self.operation
        pairs = asked.pairs or None
        plan = direct_plan(asked.collective, self._size, root=asked.root or 0, pairs=pairs)
        return Prepared(plan, self._rank, "direct")

    def planned(self, counts: np.ndarray, bytes: int, itemsize: int = 1) -> Prepared | None:
        """The schedule to run instead of the library's own collective; decided by what all ranks know alike.

        With prices it is the cheapest plan that serves these counts at this size, or :attr:`direct` where that is
        cheaper and trials are held; without prices it is the first plan that serves them.
        """
        if self.forced in ("direct", "native"):
            return None
        fitting = [
            position
            for position, ready in enumerate(self._ready)
            if ready.plan.min_bytes <= bytes <= ready.plan.max_bytes and serves(ready.plan, counts)
        ]
        if not fitting:
            return None
        if self._pricing is None:
            return self._ready[fitting[0]]
        if self.trial and self.forced is None and self._pricing.direct is not None:
            fitting.append(self._pricing.direct)
        best = fitting[0] if len(fitting) == 1 else self._pricing.cheapest(counts * itemsize, fitting)
        return self.direct if best == self._pricing.direct else self._ready[best]
