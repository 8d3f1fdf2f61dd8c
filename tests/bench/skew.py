"""The policy over a drifting trace: ``python -m tests.bench.skew [STEPS] [--bound EVERY] [--machine NAME]``.

For each skew: how much slower than the best choice per step, than the linear program's bound (every EVERY-th step), and
how much faster than always the first plan (direct, where every pair has a route); and the microseconds of one choice at
64 ranks. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from solver import portfolio
from solver.bound import Problem, generate
from synth.collective import Collective, Demand
from synth.plan import Plan
from synth.simulator import simulate
from synth.simulator.policy import Policy
from synth.testing.traces import drifting_zipf
from synth.topology import Routes, Topology, catalog

BYTES = 200 * 2**20


def ready_plans(topology: Topology) -> dict[str, Plan]:
    """The alltoalls that the machine can do, direct, spread, planned and oblivious, as a job would keep them ready."""
    demand = Demand(collective=Collective.ALLTOALL, ranks=len(topology.gpus), bytes=BYTES)
    strategies = {"direct": "direct", "spread": "spread", "planned": "routed", "oblivious": "oblivious"}
    problem = Problem.of(Routes.among(topology), demand)
    serving = {strategy.name for strategy in portfolio.STRATEGIES if strategy.serves(problem)}
    return {
        name: portfolio.solve(topology, demand, strategies=[chosen], launch_ns=9000.0).plan
        for name, chosen in strategies.items()
        if chosen in serving
    }


def over_trace(topology: Topology, policy: Policy, plans: dict[str, Plan], skew: float, steps: int, every: int) -> str:
    """One row of the table."""
    routes = Routes.among(topology)
    chosen, best, first, bounded, bound = 0.0, 0.0, 0.0, 0.0, 0.0
    used: dict[str, int] = {}
    for step, matrix in enumerate(drifting_zipf(routes.ranks, steps, skew=skew, seed=1)):
        demand = Demand(
            collective=Collective.ALLTOALL,
            ranks=routes.ranks,
            bytes=int(matrix.sum(axis=1).max()),
            matrix=matrix.astype(np.float64),
        )
        seconds = {
            name: simulate(plan, topology, demand, launch_ns=9000.0, routes=routes).seconds
            for name, plan in plans.items()
        }
        choice = policy.choose(matrix).name
        used[choice] = used.get(choice, 0) + 1
        chosen += seconds[choice]
        best += min(seconds.values())
        first += next(iter(seconds.values()))
        if step % every == 0:
            bound += generate(Problem.of(routes, demand)).bound
            bounded += seconds[choice]
    shares = ", ".join(f"{name} {count}" for name, count in sorted(used.items()))
    return (
        f"| {skew:g} | {100 * (chosen / best - 1):.2f} % | {100 * (bounded / bound - 1):.1f} % | "
        f"{first / chosen:.2f} | {shares} |"
    )


def microseconds(topology: Topology, policy: Policy) -> tuple[float, float]:
    """(least, median) of one choice."""
    matrices = list(drifting_zipf(len(topology.gpus), 200, skew=0.8, seed=0))
    times = []
    for matrix in matrices * 5:
        begin = time.perf_counter()
        policy.choose(matrix)
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6, float(np.median(times)) * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int, nargs="?", default=1000)
    parser.add_argument("--bound", type=int, default=20, metavar="EVERY")
    parser.add_argument("--machine", default="hgx-h100x4")
    args = parser.parse_args()
    topology = catalog.build(args.machine)
    plans = ready_plans(topology)
    policy = Policy(plans, topology, launch_ns=9000.0)
    print(f"| Zipf | over the best choice | over the LP bound | {next(iter(plans))} / policy | chosen |")
    print("|---|---|---|---|---|")
    for skew in (0.0, 0.5, 0.8, 1.2):
        print(over_trace(topology, policy, plans, skew, args.steps, args.bound), flush=True)
    large = catalog.build("hgx-h100x8")
    ready = ready_plans(large)
    least, median = microseconds(large, Policy(ready, large, launch_ns=9000.0))
    print(f"one choice among {len(ready)} plans at 64 ranks: {least:.0f} us at best, {median:.0f} us in the median")


if __name__ == "__main__":
    main()
