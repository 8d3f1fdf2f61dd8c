"""``synth bound``: the least time any schedule can take, with its proof, in a form that ``synth check`` reads."""

from __future__ import annotations

import argparse

from solver.bound import prove
from solver.cli import request
from synth.cli.answer import Answer
from synth.plan.claim import Claim
from synth.units import format_bytes, format_rate, format_seconds


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    request.configure(parser)


def run(args: argparse.Namespace) -> Answer:
    """Prove the bound."""
    asked = request.read(args)
    with request.interruptible() as interrupt:
        bound = prove(
            asked.topology,
            asked.demand,
            ranks=asked.ranks,
            time_limit=args.time_limit,
            seed=args.seed,
            cancel=interrupt,
        )
    certificate = bound.certificate
    claim = Claim(ranks=asked.ranks, demand=asked.demand, certificate=certificate, symmetry=bound.symmetry)
    document = claim.to_document() | {
        "bound_seconds": bound.seconds,
        "algbw_bytes_per_s": bound.algbw_bytes_per_s,
        "bandwidth_bound_seconds": certificate.bound_ns * 1e-9,
        "latency_bound_seconds": (certificate.latency_bound_ns or 0.0) * 1e-9,
        "binding": bound.binding,
        "optimal": bound.optimal,
        "solve_seconds": bound.solve_seconds,
    }
    demand = asked.demand
    text = (
        f"{demand.collective.value} of {format_bytes(demand.bytes)} among {demand.ranks} ranks of "
        f"{asked.topology.name}: at least {format_seconds(bound.seconds)} ({bound.binding}), "
        f"algbw at most {format_rate(bound.algbw_bytes_per_s)}"
    )
    if not bound.optimal:
        text += "; time was short, and a longer run may prove more"
    return Answer(document, text)
