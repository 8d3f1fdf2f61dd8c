"""The front door to both cost models, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from synth.collective import Demand
from synth.plan import Plan
from synth.simulator import rounds, timeline
from synth.simulator.loads import Loads
from synth.topology import Routes, Topology

LAUNCH_NS = 9000.0
"""Cost of starting one round where plans are chosen to be run: one NCCL group on an H200. Comparisons use 0."""


class Cost(StrEnum):
    """The two cost models."""

    ROUNDS = "rounds"
    """Official: rounds one after another, each as long as its slowest route plus its busiest link."""
    TIMELINE = "timeline"
    """No barriers: each transfer starts when its data is there and its links are free."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """What one plan costs for one demand.

    Attributes:
        seconds: time of the whole plan.
        rounds: rounds that move anything.
        bytes: size of the demand.
        algbw_bytes_per_s: bytes / time.
        busbw_bytes_per_s: as nccl-tests defines it.
        link_seconds: [links] time each link of the topology is busy.
    """

    seconds: float
    rounds: int
    bytes: int
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    link_seconds: np.ndarray


def simulate(
    plan: Plan,
    topology: Topology,
    demand: Demand,
    *,
    launch_ns: float = 0.0,
    cost: Cost | str = Cost.ROUNDS,
    routes: Routes | None = None,
) -> Simulation:
    """Price a plan for a demand.

    Args:
        plan: valid on this topology (see :func:`synth.verifier.verify`).
        topology: where it runs.
        demand: what it moves.
        launch_ns: cost of starting one round; only the rounds model knows it.
        cost: which model.
        routes: those among the plan's ranks, where they are at hand.

    Raises:
        InvalidPlan: a transfer has no route.
        DemandError: the demand is not one this plan serves.
    """
    loads = Loads.of(plan, topology, demand, routes)
    if Cost(cost) is Cost.TIMELINE:
        seconds, moving = timeline.finish(loads), rounds.moving_rounds(loads)
    else:
        seconds, moving = rounds.price(loads, launch_ns)
    algbw = demand.bytes / seconds if seconds > 0 else 0.0
    return Simulation(
        seconds=seconds,
        rounds=moving,
        bytes=demand.bytes,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * demand.collective.busbw_factor(demand.ranks),
        link_seconds=loads.link_seconds(),
    )
