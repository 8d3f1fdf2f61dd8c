"""synth: topology-aware synthesis of collective schedules for GPU clusters.

The public surface, loaded on first use::

    import synth

    machine = synth.load("machine.json")                # or synth.catalog.build("asym8")
    solved = synth.solve(machine, "alltoall", bytes=1_000_000_000)
    assert not synth.verify(solved.plan, machine)
    print(synth.simulate(solved.plan, machine, solved.demand).seconds)

and in a training script::

    ep = synth.attach()
    layer = synth.pytorch.MoELayer(ep, dim, experts)    # see docs/pytorch.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from synth import pytorch
    from synth.api import attach, load, solve
    from synth.collective import Collective, Demand
    from synth.plan import Plan
    from synth.simulator import Simulation, simulate
    from synth.topology import Topology, catalog
    from synth.verifier import Violation, verify

_HOME = {
    "Collective": "synth.collective",
    "Demand": "synth.collective",
    "Plan": "synth.plan",
    "Simulation": "synth.simulator",
    "Topology": "synth.topology",
    "Violation": "synth.verifier",
    "attach": "synth.api",
    "catalog": "synth.topology",
    "load": "synth.api",
    "simulate": "synth.simulator",
    "solve": "synth.api",
    "verify": "synth.verifier",
}

__all__ = [
    "Collective",
    "Demand",
    "Plan",
    "Simulation",
    "Topology",
    "Violation",
    "attach",
    "catalog",
    "load",
    "pytorch",
    "simulate",
    "solve",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'synth' has no attribute {name!r}")
    value = import_module("synth.pytorch") if name == "pytorch" else getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
