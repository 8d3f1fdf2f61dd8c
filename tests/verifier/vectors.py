"""The shared plans with the verdicts of an independent implementation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from synth import plan as plans
from synth.collective import Demand
from synth.plan import Plan
from synth.plan.sizes import demand_of
from synth.topology import Topology, catalog


@dataclass(frozen=True)
class Vector:
    plan: Plan
    topology: Topology
    demand: Demand
    expected: dict[str, Any]


def read(path: Path) -> Vector:
    expected = json.loads(path.read_text())
    plan = plans.from_document(expected["plan"], subject=path.name)
    if "demand" in expected:
        demand = demand_of(plan, None, np.array(expected["demand"], dtype=float))
    else:
        demand = demand_of(plan, expected["bytes"])
    return Vector(plan, catalog.build(expected["topology"]), demand, expected)


def all_of(shared: Path) -> list[Vector]:
    return [read(path) for path in sorted((shared / "data/vectors").glob("*.json"))]
