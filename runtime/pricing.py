"""Which of the ready alltoall schedules is the cheapest for the counts of one call, the same on every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from runtime.communicators import Communicator
from synth import plan as plans
from synth.errors import SynthError
from synth.plan import Plan
from synth.simulator import LAUNCH_NS
from synth.simulator.policy import Policy
from synth.topology import Topology
from synth.verifier import verify

MOST_RANKS = 64
"""Groups that are priced; preparing the prices of larger ones would delay a job's first call by seconds."""
_PROBES = 8


class Pricing:
    """Prices of ready plans, and of the direct exchange where every pair has a route.

    Args:
        ready: plans over the same ranks.
        direct: the direct exchange.
        topology: where they run.

    Raises:
        SynthError: they cannot be priced.
    """

    def __init__(self, ready: Sequence[Plan], direct: Plan, topology: Topology) -> None:
        named = {str(number): plan for number, plan in enumerate(ready)}
        try:
            with_direct = named | {"direct": direct.with_(ranks=ready[0].ranks, topology=ready[0].topology)}
            self._policy = Policy(with_direct, topology, launch_ns=LAUNCH_NS)
            self.direct: int | None = len(named)
        except SynthError:
            self._policy = Policy(named, topology, launch_ns=LAUNCH_NS)
            self.direct = None
        self._digests = [plan.digest for plan in ready]

    def cheapest(self, bytes_per_pair: np.ndarray, among: Sequence[int]) -> int:
        """Position of the cheapest of the listed schedules; the direct exchange stands behind the plans.

        Args:
            bytes_per_pair: [ranks, ranks] whole numbers.
            among: positions; the first of equally cheap ones wins.
        """
        seconds = self._policy.seconds(bytes_per_pair)
        return min(among, key=lambda position: seconds[position])

    def identity(self) -> bytes:
        """64 bytes that are equal on ranks whose prices are: the plans, and the prices of some drawn counts."""
        rng = np.random.default_rng(0)
        drawn = rng.integers(0, 2**20, (_PROBES, self._policy.ranks, self._policy.ranks))
        prices = [self._policy.seconds(counts) for counts in drawn]
        said = repr((self._digests, prices)).encode()
        return hashlib.sha256(said).hexdigest().encode()


def alternatives(paths: Sequence[str], first: Plan, topology: Topology) -> tuple[Plan, ...]:
    """Further plan files for the same alltoall: valid, over the same ranks of the same topology, in order."""
    found: dict[str, Plan] = {}
    for path in paths:
        try:
            plan = plans.load(path)
        except SynthError:
            continue
        same = (plan.collective, plan.ranks, plan.topology) == (first.collective, first.ranks, first.topology)
        if same and plan.digest != first.digest and not plan.helpers and not verify(plan, topology):
            found.setdefault(plan.digest, plan)
    return tuple(found.values())


def price(ready: Sequence[Plan], direct: Plan, topology: Topology) -> Pricing | None:
    """The prices, or None where there are none."""
    if direct.members > MOST_RANKS:
        return None
    try:
        return Pricing(ready, direct, topology)
    except SynthError:
        return None


def agree_on_choice(communicator: Communicator, trial: bool, pricing: Pricing | None) -> tuple[bool, Pricing | None]:
    """Whether trials are held, and the prices: only where all ranks want the ones and have the same others.

    Raises:
        RemoteError: a rank does not answer.
    """
    own = pricing.identity() if pricing is not None else b"-" * 64
    everyone = communicator.gather((b"1" if trial else b"0") + own)
    same = all(one[1:] == own for one in everyone)
    return all(one[:1] == b"1" for one in everyone), pricing if same else None
