"""Several plans that run at the same time on the same links.

Rounds are counted from a common start: round r of all plans together takes the launch cost, the largest latency and the
busiest link, whose load is the sum over the plans. Groups do not really wait for each other between rounds, so this is
on the safe side, as the model of one plan is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.collective import Demand
from synth.plan import Plan
from synth.simulator.loads import Loads
from synth.simulator.rounds import Running, seconds
from synth.topology import Topology


def simulate_together(
    plans: Sequence[Plan], topology: Topology, demands: Sequence[Demand], *, launch_ns: float = 0.0
) -> float:
    """Seconds until all plans have ended, in the rounds model.

    Args:
        plans: each valid on this topology; their ranks may overlap.
        topology: where they run.
        demands: what each moves.
        launch_ns: cost of starting one round.

    Raises:
        InvalidPlan: a transfer has no route.
        DemandError: a demand is not one its plan serves.
    """
    parts = [Running.of(Loads.of(plan, topology, demand)) for plan, demand in zip(plans, demands, strict=True)]
    if not parts:
        return 0.0
    firsts = np.concatenate([[0], np.cumsum([len(part.begin) for part in parts])])
    merged = Running(
        begin=np.concatenate([part.begin for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        latency_ns=np.concatenate([part.latency_ns for part in parts]),
        row=np.concatenate([part.row + first for part, first in zip(parts, firsts[:-1], strict=True)]),
        link=np.concatenate([part.link for part in parts]),
        busy_ns=np.concatenate([part.busy_ns for part in parts]),
    )
    return seconds(merged, launch_ns)[0]
