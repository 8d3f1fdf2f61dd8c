"""What ``synth solve`` answers about one plan: as JSON and as text."""

from __future__ import annotations

from dataclasses import dataclass

from solver.cli.request import Asked
from solver.exact import Exact, Objective
from solver.explain import binding_links
from solver.portfolio import Solved
from synth.cli.answer import Answer
from synth.documents import Json
from synth.units import format_bytes, format_rate, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """More to say about a solve.

    Attributes:
        key: in the JSON answer.
        document: what stands there.
        lines: for people.
    """

    key: str
    document: Json
    lines: tuple[str, ...]


def answer(asked: Asked, solved: Solved, *, output: str | None, parts: list[Part]) -> Answer:
    """The answer of a solve.

    Args:
        asked: what was asked.
        solved: what was found.
        output: file the plan is in.
        parts: what else there is to say.
    """
    explained = any(part.key == "explain" for part in parts)
    return Answer(
        _document(asked, solved, output) | {part.key: part.document for part in parts},
        "\n".join(
            [*lines(asked, solved, output, explained=explained), *(line for part in parts for line in part.lines)]
        ),
    )


def _document(asked: Asked, solved: Solved, output: str | None) -> dict[str, Json]:
    certificate = solved.bound.certificate
    return {
        "digest": solved.plan.digest,
        "strategy": solved.strategy,
        "termination": solved.termination.value,
        "bound_seconds": solved.bound.seconds,
        "bandwidth_bound_seconds": certificate.bound_ns * 1e-9,
        "latency_bound_seconds": (certificate.latency_bound_ns or 0.0) * 1e-9,
        "binding": solved.bound.binding,
        "predicted_seconds": solved.predicted_seconds,
        "algbw_bytes_per_s": solved.demand.bytes / solved.predicted_seconds if solved.predicted_seconds else 0.0,
        "gap": solved.gap,
        "solve_seconds": solved.seconds,
        "bytes": solved.demand.bytes,
        "plan_file": output,
        "candidates": solved.candidates,
        "binding_links": [
            {"title": entry.title, "part": entry.part, "links": list(entry.links)}
            for entry in binding_links(certificate, asked.topology)
        ],
    }


def lines(asked: Asked, solved: Solved, output: str | None, *, explained: bool = False) -> list[str]:
    """For people; what the explanation says too is left to it."""
    plan, demand = solved.plan, solved.demand
    algbw = demand.bytes / solved.predicted_seconds if solved.predicted_seconds else 0.0
    told = [
        f"{demand.collective.value} of {format_bytes(demand.bytes)} among {demand.ranks} ranks of "
        f"{asked.topology.name}: {format_seconds(solved.predicted_seconds)}, {format_rate(algbw)}, "
        f"{solved.gap:.2%} over the bound of {format_seconds(solved.bound.seconds)} ({solved.bound.binding})",
        f"{solved.strategy}, {len(plan.chunks)} chunks in {plan.segments} segments over {plan.rounds} rounds; "
        f"{solved.termination.value} after {solved.seconds:.2f} s",
        f"plan {plan.digest}" + (f" in {output}" if output else "; keep it with -o PLAN"),
    ]
    others = {name: seconds for name, seconds in solved.candidates.items() if name != solved.strategy}
    if others:
        told.append("others: " + ", ".join(f"{name} {format_seconds(s)}" for name, s in others.items()))
    if solved.bound.binding == "bandwidth" and not explained:
        binding = binding_links(solved.bound.certificate, asked.topology)[:3]
        told += [f"{entry.part:.0%} of the bound hangs on {entry.title}" for entry in binding]
    return told


def exact_part(exact: Exact, *, used: bool) -> Part:
    """What was proven by integer programs."""
    return Part(
        key="exact",
        document=exact.to_document() | {"used": used},
        lines=(_proof(exact), *([] if used else [_beaten(exact)])),
    )


def _proof(exact: Exact) -> str:
    """What is known about all schedules of the kind that was searched."""
    kind = f"blocks cut in {exact.chunks}" if exact.chunks > 1 else "whole blocks"
    kind += ", alike on all ranks" if exact.symmetric else ""
    allowed = "any number of rounds" if exact.any_rounds else f"at most {exact.rounds} rounds"
    match exact.objective:
        case Objective.TIME:
            what, value, bound = (
                f"time with {kind}, {allowed}",
                format_seconds(exact.value),
                format_seconds(exact.bound),
            )
        case Objective.ROUNDS:
            what, value, bound = f"number of rounds of one slot with {kind}", f"{exact.value:g}", f"{exact.bound:g}"
        case Objective.SLOTS:
            what, value, bound = f"number of slots with {kind}, {allowed}", f"{exact.value:g}", f"{exact.bound:g}"
    if exact.value == float("inf"):
        return f"exact: no schedule found in time; the least {what}: at least {bound}"
    if exact.proven:
        return f"exact: proven, the least {what}: {value}"
    return f"exact: the least {what}: between {bound} and {value} ({exact.gap:.1%} apart)"


def _beaten(exact: Exact) -> str:
    if exact.value == float("inf"):
        return "the plan is the strategies' best"
    return "the plan is the strategies' best, which is as fast or faster because it cuts blocks in other ways"


def oblivious_part(solved: Solved) -> Part | None:
    """What an oblivious plan guarantees; None for other plans."""
    told = solved.plan.solver.get("oblivious")
    if told is None:
        return None
    line = (
        f"oblivious: at most {format_seconds(told['guaranteed_seconds'])} whatever the byte counts, as long as no rank "
        "sends or receives more"
    )
    if told["guaranteed_ratio"] is not None:
        line += f"; {told['guaranteed_ratio']:.3f} times what the hardest of them needs in any case"
    if told["direct_seconds"] is not None:
        line += f"; the direct exchange: {format_seconds(told['direct_seconds'])}"
    return Part(key="oblivious", document=told, lines=(line,))
