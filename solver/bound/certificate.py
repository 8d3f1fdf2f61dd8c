"""From dual prices to a certificate that anyone can check without a solver."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from solver.backend import Cancel
from solver.bound.generation import Fractional, generate
from solver.bound.problem import Problem
from solver.bound.shallow import farthest, limited
from synth.collective import Demand
from synth.plan import Certificate, Symmetry
from synth.topology import Routes, Topology
from synth.verifier.certificate import latency_bound_ns, proven_bound_ns

SAFETY = 1e-9
"""How far the stated bound stays below what the lengths prove, so that rounding never turns it into a lie."""
DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no schedule can beat.

    Attributes:
        certificate: bandwidth bound with its proof, and the latency bound.
        seconds: the largest of the bandwidth bound and the latency bound, launches included where they were asked for.
        binding: which of the two that is, ``bandwidth`` or ``latency``.
        algbw_bytes_per_s: bytes / seconds.
        optimal: whether some fractional use of the links reaches the bandwidth bound.
        solve_seconds: what finding it took.
        symmetry: by whose orbits the proof may be checked; of large machines only.
    """

    certificate: Certificate
    seconds: float
    binding: str
    algbw_bytes_per_s: float
    optimal: bool
    solve_seconds: float
    symmetry: Symmetry | None = None


def certify(problem: Problem, prices: np.ndarray) -> Certificate:
    """The certificate of the given link prices; its bound is recomputed from the lengths as they are written.

    Args:
        problem: what was priced.
        prices: [rows] price of one second of each link.
    """
    lengths = problem.link_prices(prices) / problem.routes.topology.bytes_per_s
    lengths = lengths / max(lengths.max(initial=0.0), 1e-300)
    written = np.array([float(f"{length:.{DIGITS}g}") for length in lengths])
    certificate = Certificate("lengths", 0.0, lengths=written)
    proven = proven_bound_ns(certificate, problem.routes, problem.demand) * (1 - SAFETY)
    return replace(
        certificate,
        bound_ns=float(proven),
        latency_bound_ns=latency_bound_ns(problem.routes, problem.demand),
    )


def prove(
    topology: Topology,
    demand: Demand,
    *,
    ranks: tuple[str, ...] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    cancel: Cancel = lambda: False,
) -> Bound:
    """Bound the time of every schedule for a demand.

    Args:
        topology: where it runs.
        demand: what must be delivered.
        ranks: device id of each rank, helpers last; default: every GPU.
        time_limit: seconds after which the best bound so far is given.
        seed: for the linear program.
        cancel: asked now and then whether to stop with the best bound so far.

    Raises:
        TopologyError: some rank cannot reach another.
    """
    began = time.monotonic()
    problem = Problem.of(Routes.among(topology, ranks), demand, symmetric=True)
    # shallow routes are for plans, and looked for among all pairs of ranks
    second = limited(max(farthest(problem), 2)) if problem.kinds is None else None
    fractional = generate(problem, deadline=began + time_limit, seed=seed, second=second, cancel=cancel)
    return bound_of(problem, fractional, began)


def bound_of(problem: Problem, fractional: Fractional, began: float, *, launch_ns: float = 0.0) -> Bound:
    """The bound that a (perhaps unfinished) run of column generation proves."""
    certificate = certify(problem, fractional.prices)
    latency_ns = latency_bound_ns(problem.routes, problem.demand, launch_ns=launch_ns)
    seconds = max(certificate.bound_ns, latency_ns) * 1e-9
    return Bound(
        certificate=certificate,
        seconds=seconds,
        binding="bandwidth" if certificate.bound_ns >= latency_ns else "latency",
        algbw_bytes_per_s=problem.demand.bytes / seconds if seconds > 0 else 0.0,
        optimal=fractional.optimal,
        solve_seconds=time.monotonic() - began,
        symmetry=None if problem.kinds is None else Symmetry.of(problem.kinds.group),
    )
