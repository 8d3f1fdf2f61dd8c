"""A stand-in for the solver, loaded by name in the child process: one direct round, told by ``seed`` how to behave."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from synth.collective import Demand
from synth.errors import Infeasible
from synth.plan import Chunks, Plan, Predicted, Transfers
from synth.topology import Topology

SLOW, CRASH, INFEASIBLE, INVALID, DEAF = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Solved:
    plan: Plan


def solve(
    topology: Topology,
    demand: Demand,
    *,
    ranks: Any,
    time_limit: float,
    cost: str,
    launch_ns: float,
    seed: int,
    progress: Any,
) -> Solved:
    log = os.environ.get("FAKE_SOLVER_LOG")
    if log:
        with open(log, "a") as file:
            file.write(f"start {os.getpid()} {seed}\n")
    if seed == CRASH:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == INFEASIBLE:
        raise Infeasible("no schedule exists: rank 0 is an island", subject="rank 0")
    if seed == DEAF:
        time.sleep(3600)
    print("a banner on stdout, as solvers print")
    end = time.monotonic() + (time_limit if seed == SLOW else float(os.environ.get("FAKE_SOLVER_SECONDS", "0")))
    step = 0
    while time.monotonic() < end:
        step += 1
        progress({"incumbent_seconds": 1.0 + 1.0 / step, "bound_seconds": 1.0, "gap": 1.0 / step})
        time.sleep(0.05)
    plan = direct(topology, demand, ranks)
    if seed == INVALID:
        plan = plan.with_(denominator=2)
    if log:
        with open(log, "a") as file:
            file.write(f"end {os.getpid()} {seed}\n")
    return Solved(plan)


def direct(topology: Topology, demand: Demand, ranks: Any) -> Plan:
    pairs = [(a, b) for a in range(len(ranks)) for b in range(len(ranks)) if a != b]
    src, dst = (np.array(column) for column in zip(*pairs, strict=True))
    zeros = np.zeros_like(src)
    return Plan(
        collective=demand.collective,
        ranks=tuple(ranks),
        topology=topology.fingerprint,
        segments=1,
        denominator=1,
        chunks=Chunks(src, dst, zeros + 1),
        transfers=Transfers(np.arange(len(pairs)), src, dst, zeros, zeros).sorted(),
        demand=demand.matrix,
        predicted=Predicted((demand.bytes,), (1.0,)),
        solver={"strategy": "direct"},
    )
